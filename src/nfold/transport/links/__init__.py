"""One link per peer: frames, matching of messages with receives, and what carries the bytes."""
