"""Makes proven connections: listening sockets, handshakes, a full mesh of ranks; and encrypts them.

Connections are accepted in `acceptor.py`, and the token is checked in `token_proof.py`. A job's
certificate is made in `job_token.py`, and checked in `tls_socket.py`.
"""
