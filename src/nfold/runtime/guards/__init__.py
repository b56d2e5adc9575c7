"""Goes on looking, while a program trains, whether chunks still give what their batch would give.

checked_loss      whether the loss is a mean over a chunk's samples; uneven_samples, where it is one on a condition
later_trials      whether samples see each other; stage_trials, the same for a cut model
trial_occasions   when that is tried again, and what ends the run
some_samples, sample_views    samples of a chunk, taken together and apart
seen_inputs, seen_targets     which samples are unlike all before
own_weights       whether a loss reads the weights that are trained
bad_loss          where a loss that is no number comes from
"""
