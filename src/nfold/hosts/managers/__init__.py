"""What starts agents: one module for each way to come to hosts."""
