"""Plays one rank's tasks of a step: computing in the listed order, messages as soon as they may go.

replica             one rank's part of a job, built from a plan: model, buffers, optimizers, engine
engine              plays tasks, whatever they are
cells               performs them with torch: loads, forwards, backwards, updates
activations         what segments of a cut model hand to each other
gradient_signals    when a bucket's gradients are complete
clipping            the norm of all gradients, and the factor
chunk_statistics    batch statistics, chunk by chunk
changed_buffers     buffers that forward changed on one rank alone
stall_report        what a task that takes far too long is behind in
reduction_times     when buckets were complete, and moved
built_model         the model with its buffers and optimizers, which outlives a generation where it can
kept_program        what is made of a program once for all generations
"""
