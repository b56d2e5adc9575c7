"""The nouns: frozen dataclasses that need the standard library only, and their JSON form.

codec                     nouns as JSON and back
graph                     the model: operators and tensors
profile, measured         what a program costs, and on what that was measured
cluster                   the machines
job, members              what a job is asked to do; who takes part in it
chunks                    how many samples each chunk gets
placement, plan           who computes each cell; what will run where, and what lost to it
tasks, schedule           what a rank does in a step
trace, report             what each rank did; what a run amounted to
run_state                 what others see of a run while it goes on
residency                 who holds which samples
condition, outputs        what data must meet for a batch to be cut; what modules put out
environment               what a run ran on
options, findings, text   what a user may ask; what verbs find; what people write and read
"""
