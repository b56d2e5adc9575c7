"""The user's optimizer: built over any weights, how far its update can be cut, and how its state is kept.

update_scope     decides how far an update can be cut: by element, by parameter, not at all; step_scope compares the
                 steps, and step_code with elementwise_names looks into code that has not run yet
state_scope      decides whether the state can be cut: kept by pieces of parameters, whole, or not at all
lost_state       says what of it a run that goes on would not have
state_tree       a state_dict as JSON and tensors
stepping         builds the optimizer and its schedule over any weights
optimizer_runs   steps it on small weights, for trials
changed_outside  what steps change outside of it
weighing         whether its learning rate weighs a gradient, for servers without a common step
touched_rows     rows of a dense gradient that were touched, for sparse ones
"""
