"""One rule for each cause of lost time: what it says of a run, and by which numbers. Each gives its finding a class.

communication   link, server, latency, and who of those below is asked in which order
senders         transport, or server: bytes that wait for processors
slices          latency of an asynchronous run
pipelines       bubble, and stages that are unequal
peer_wait       peer wait: a worker that the others wait for, and why it is slow
workers         compute, input, memory, small batch
causes          asks all rules, and weighs what each cause costs
finding         what a rule returns

Which of their findings is the run's verdict is decided in `analysis/reporting/verdict.py`.
"""
