"""Samples: their order, reading and joining them ahead of the steps, in threads or in processes of their own."""
