"""Decides what the ranks of a job do next, from loading to the last step. All is pure but its shell, `session`."""
