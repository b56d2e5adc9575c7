"""Data that live on the nodes of a job: who holds what, what should move, and the orders that let it move."""
