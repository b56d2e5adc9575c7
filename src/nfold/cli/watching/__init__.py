"""Commands that look after a run of another terminal, or of yesterday: list, watch, read, stop, explain it."""
