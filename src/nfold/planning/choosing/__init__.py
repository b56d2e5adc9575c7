"""Chooses a plan: asks every strategy, simulates what may win, says why the others lost and what to ask for instead."""
