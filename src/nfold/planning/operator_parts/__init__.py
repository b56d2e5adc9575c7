"""Operators cut into parts by output channels: which, how many, and what graph and measurements become."""
