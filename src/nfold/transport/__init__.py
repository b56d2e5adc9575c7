"""Moves bytes between ranks: one protocol (`protocol`), over memory or TCP, and a probe of its speed."""
