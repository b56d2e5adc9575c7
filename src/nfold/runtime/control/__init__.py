"""Control messages between the coordinator and ranks: connections, orders, events, files in pieces.

channel          one connection: JSON, and bytes beside it
control_server   lets members in, hears them, and notices that one is gone
orders           a rank's orders as they come
order_log        which orders a rank has got, for those that they have not reached
own_failure      what a rank tells of itself when it cannot go on
events           what the coordinator is told
commands         what it answers, and what is told to those who watch
halting          stops ranks after one and the same step
ticket_rows      what ranks of an asynchronous run did, as rows of steps
spool            files that come in pieces
"""
