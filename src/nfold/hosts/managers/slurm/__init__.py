"""Slurm as a way to hosts: jobs of its queue, or the allocation that this process is in."""
