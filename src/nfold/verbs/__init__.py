"""What users call: train, start, resume, plan, why, compare, demo, emulate, report, stop."""
