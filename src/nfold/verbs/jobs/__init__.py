"""Runs seen from other terminals: the list of the user's runs, a run's state while it goes on, its log, its end."""
