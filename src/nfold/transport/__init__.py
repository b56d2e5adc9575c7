"""Moves bytes between ranks: one protocol (`base`), over memory, TCP or torch.distributed, and a probe of its speed."""
