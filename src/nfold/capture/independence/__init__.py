"""Tries whether samples of a batch see each other, and whether the loss is a mean over them, where no proof says it.

divisible                       the trial: a batch whole and in parts must give equal outputs, losses and gradients
sample_mean                     compares a loss with the mean over parts, and makes the sentence that it is none
declared_loss                   reads off the settings of a loss of torch's own that it is none
mixing_line                     finds the user's line at which samples mix
padding                         whether outputs follow how far a batch is padded
least_samples, whole_batches    programs that need two samples at least, or batches of one size
objections                      what of a model's weights forbids to spread its batch
batch_cut, comparisons          what trials are made of
stage_trial, sample_axes        the same trial for the part of a cut model that one rank computes

What comes of proof and trials is decided in `capture/program_facts.py`. Who asks for more than one chunk all the same
is refused in `planning/choosing/wishes.py`. While a program trains, `runtime/guards` tries again.
"""
