"""Runs a plan: one coordinator that decides, and ranks that do what it says.

coordinator    decides what the ranks of a job do next, from loading to the last step
rank           the life of a rank's process; the other side of that conversation
control        the conversation itself: connections, orders, events
step           plays one rank's tasks of a step
asynchronous   what plays instead under `ps-async` and `ssp`
parameters     weights, buckets and the optimizer's updates on a rank
data           samples: their order, reading ahead, loaders
samples        samples that live on some nodes: kept, sent and fetched
checkpoint     the whole model's and the optimizer's state from what each rank holds
guards         goes on looking whether chunks still give what their batch would give
measuring      probes of links and machines
failures       who failed first
"""
