"""From what is known of program and machines to a plan and its schedule. Pure.

choosing           asks every strategy, simulates what may win, and says why the others lost
inputs             what strategies may know; into how many chunks a batch may be cut
stages             strategies `pipeline` and `hybrid`
hypergraph         strategy `hypergraph`
asynchronous       strategies `ps-async` and `ssp`
operator_parts     operators cut by output channels
reductions         how gradients are summed: buckets, who sums what, and the messages of a ring and of servers
costs              seconds and bytes of a placement
scheduling         compiles a placement and its reductions into each rank's tasks
residency          where training samples should live: what moves between nodes, and who trains on what
"""
