"""Compiles a placement and its reductions into the tasks of one step, in an order that is fixed before the run."""
