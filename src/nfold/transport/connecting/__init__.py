"""Makes proven connections: listening sockets, handshakes, and a full mesh of ranks."""
