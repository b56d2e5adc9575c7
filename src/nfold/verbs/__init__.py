"""What users call: train, start, resume, plan, why, compare, demo, emulate, report, stop.

train           train, start, resume, plan, why
compare         the same program under several strategies, sizes and links; demo, with the digits
advise          how many nodes are worth having
place           where training samples should live
declared_plan   plans for machines that are only described
try_plans       several plans tried with the same ranks
emulate         any command on an emulated cluster
doctor          looks at hosts before a run

Rooms, upper ones first: `running` (one run), `watching` (dashboards), `ranks` (how they start), `results` (reports and
pages), `jobs` (runs of other terminals), `run_folder`, `options`.
"""
