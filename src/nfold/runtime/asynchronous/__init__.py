"""The asynchronous parameter server: a service that reacts to whoever comes, where a schedule has a list to play.

asynchronous_replica       one rank of an asynchronous plan
client                     a worker: ticket, values, gradient, again and again
server                     a shard: asks the rules about each request, and does what they say
store, shards              a shard's tensors; which elements it serves
rank_state, snapshot_parts  what a rank has for checkpoints, for the next generation, and of a snapshot
tickets, slice_computing   which samples a ticket stands for; computing them
worker_and_shard_messages  what the two say to each other
ticket_spans               what was done when

The rules, which gradient is applied how and who waits, are in `planning/asynchronous/staleness.py`; what waits for a
snapshot, in `held_shard.py` there.
"""
