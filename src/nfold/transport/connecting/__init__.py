"""Makes proven connections: listening sockets, handshakes, a full mesh of ranks; and encrypts them.

A job's certificate is made in `job_token.py`, and checked in `tls_socket.py`.
"""
