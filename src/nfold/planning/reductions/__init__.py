"""How gradients are summed: which parameters share a bucket, which rank sums it, and the messages that it takes.

buckets                     which parameters share a bucket
shares                      which rank sums which part of it
server_shares               weights of servers by the speed of their links
reductions_without_servers  the reductions of placements without servers; those with servers are made where they are
                            proposed, in `planning/choosing/strategies.py`
ring_and_server_messages    who sends what in which round
norm_messages, acknowledgements, statistics_groups    what else ranks tell each other in a step
"""
