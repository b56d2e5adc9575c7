"""How gradients are summed: which parameters share a bucket, which rank sums it, and the messages that it takes.

buckets                     which parameters share a bucket; `cut_shares` gives each rank its part of it to sum
server_shares               how much of each bucket a rank serves, by the speed of its links
reductions_of_placement     the reductions of placements without servers; those with servers are made where they are
                            proposed, in `planning/choosing/strategies.py`
ring_and_server_messages    who sends what in which round: the share that a member of a ring sums, and a server's
norm_messages, acknowledgements, statistics_groups    what else ranks tell each other in a step
"""
