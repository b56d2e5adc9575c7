"""Plays one rank's tasks of a step: computing in the listed order, messages as soon as they may go."""
