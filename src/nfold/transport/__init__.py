"""Moves bytes between ranks: one protocol (`protocol`), over memory, TCP or torch.distributed, and a probe of its
speed."""
