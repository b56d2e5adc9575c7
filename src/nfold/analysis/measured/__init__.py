"""What a run measured, added up: where a step's time went, what each channel and each node did, what it learnt.

measured_facts                  all numbers that findings are drawn from, gathered once
breakdown                       a step's time in parts; recent_steps, those of the last steps
ledger                          the wall time of the whole run in parts
channel_use, arrivals           what each channel moved, and how fast
link_regime                     what was measured since links changed
node_loads                      processors, memory and network of each node
reduction_splits                how long each bucket queued, travelled and waited
gradient_ages, bound_waits, joined_steps    of asynchronous runs: ages, waits of bounded staleness, steps as one
steps_to_loss, winners          runs compared: who has learnt enough when, who is ahead where
"""
