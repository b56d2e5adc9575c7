"""What a call leaves behind, shares or holds where no output shows it: attributes, globals, hooks, iterators.

module_states        copies of the model, and what a forward pass changes in one
changed_by_forward   why that keeps the model whole, and the user's line
carried_over         what a pass takes over from those before it; recomputed_state, what each pass makes anew
kept_results         results that forward leaves in an attribute
shared_state         globals, closures and attributes of classes that all copies share
moving               generators, iterators and counters that a call moves
hooks, gradient_hooks    the user's hooks on modules, and on gradients
weights_beside       weights that a loss reads past the outputs
held_values          compares all that two optimizers or schedules hold
freezing, closures   values written down to compare them later; functions of a copy that mean the original
refusals             refuses what copies, checkpoints and other ranks would not have
"""
