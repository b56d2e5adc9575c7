"""Makes proven connections: listening sockets, handshakes, a full mesh of ranks; and encrypts them.

mesh                      a connection to each peer
listener, acceptor        a socket that listens; the connections of known members accepted there, others dropped
token_proof               checks the token: the first bytes of a connection
job_token, token_file     makes the token, and the certificate with `--tls`; reads it from a file
encryption, tls_socket    encrypts where the token says so, and checks the certificate
keepalive                 notices that the network does not carry
"""
