"""Keeps a TCP connection honest about its other end: both kernels ask each other, and say how long they heard nothing.

Kernels answer for programs that are stopped or busy, so this silence means that the network does not carry, or that
the other machine is gone. A connection by itself notices neither: with bytes on the way it sends them again for a
quarter of an hour, and without it waits for ever. The options of sockets are those of tcp(7).
"""

import socket
import struct

ASK_AFTER_S = 2
"""An idle connection is asked after as much silence, and again as often."""
BREAK_AFTER_S = 90
"""A connection breaks by itself after as much silence, or when its other end takes no more bytes for so long. The
coordinator, which sees all of them, gives up before."""
_TCP_INFO = struct.Struct("=52x2I")
"""Of the kernel's `tcp_info`: milliseconds since the last data came, and since the last acknowledgement did."""


def enable_keepalive(connection: socket.socket) -> None:
    """Let the kernel ask the other end for a sign of life every ASK_AFTER_S, and break after BREAK_AFTER_S without.

    Raises:
        OSError: it is no TCP connection, or is closed.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ASK_AFTER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_AFTER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, BREAK_AFTER_S * 1000)


def silent_s(connection: socket.socket) -> float:
    """Return for how long nothing came from the other end: no data, and no answer of its kernel. Exact to 1 ms.

    Raises:
        OSError: it is no TCP connection, or is closed.
    """
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    data_ms, acknowledgement_ms = _TCP_INFO.unpack(told)
    return float(min(data_ms, acknowledgement_ms)) / 1e3
