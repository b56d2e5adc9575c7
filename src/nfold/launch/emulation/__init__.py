"""Emulates a declared cluster on this machine: real processes and real TCP behind shaped links and limited cores."""

from nfold.launch.emulation.box import Box, emulated

__all__ = ["Box", "emulated"]
