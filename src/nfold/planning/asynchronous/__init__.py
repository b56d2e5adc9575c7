"""Strategies without a common step: the rules of a parameter server's shards, played in virtual time."""
