"""The transports themselves: over memory for threads of one process, and over TCP."""
