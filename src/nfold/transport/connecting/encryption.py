"""Encrypts a connection where the job's token says so."""

import socket

from nfold.transport.connecting.job_token import key_and_certificate


def secured(connection: socket.socket, token: str, *, accepts: bool) -> socket.socket:
    """Return a new connection, or one in its stead that encrypts what is sent. Nothing is sent yet.

    Args:
        connection: on which nothing has been said.
        token: the job's.
        accepts: whether the other end dialled us.

    Raises:
        ClusterError: the token is garbled.
    """
    pair = key_and_certificate(token)
    if pair is None:
        return connection
    from nfold.transport.connecting.tls_socket import TlsSocket  # the command itself needs no ssl otherwise

    return TlsSocket(connection, *pair, accepts=accepts)
