"""The user's optimizer: built over any weights, how far its update can be cut, and how its state is kept.

`update_scope.py` tries whether an update can be cut, `state_scope.py` whether the state can; both decide by trial.
"""
