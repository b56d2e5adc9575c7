"""A schedule in virtual time: event heap, shared cores, shared links."""

from nfold.simulation.simulate import simulate

__all__ = ["simulate"]
