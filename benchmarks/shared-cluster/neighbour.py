"""Sends without end over one TCP connection: HOST PORT. Another job's traffic, as the network sees it."""

import socket
import sys


def main() -> None:
    """Send until killed, or until nobody takes it any more."""
    host, port = sys.argv[1:]
    piece = bytes(1 << 20)
    with socket.create_connection((host, int(port))) as connection:
        while True:
            connection.sendall(piece)


if __name__ == "__main__":
    main()
