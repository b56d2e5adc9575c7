"""The transports themselves: over memory, over sockets, and over what libraries offer."""
