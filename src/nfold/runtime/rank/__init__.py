"""The life of a rank's process: it does what the coordinator says, evaluates, reports, and is seen to be alive.

worker                   a member: reads orders and does them, from loading to the end
process                  what lives as long as it
rank_of_generation       one rank of one generation: builds its part of a plan, and trains
rank_tools               what it needs of layers that the runtime does not know
rehearsal                tries before training what would otherwise fail late
metric_trials            whether metrics are means over samples
evaluator, evaluation    evaluates the model and its averages; loss and metrics on the test data
reporter                 tells the coordinator what was measured
heartbeat                tells it that the rank lives
state_delivery           gives the whole model's state
"""
