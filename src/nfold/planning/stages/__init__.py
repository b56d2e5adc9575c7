"""Strategies `pipeline` and `hybrid`: consecutive operators as stages on one or several ranks each."""
