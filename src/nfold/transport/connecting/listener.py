"""A listening socket whose errors say what to do."""

import socket

from nfold.errors import ClusterError

Address = tuple[str, int]


class Listener:
    """A listening socket. It may serve one mesh after another; the owner closes it."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Listen on an address of this machine; port 0 takes any free one.

        Raises:
            ClusterError: the address is not ours, or the port is in use.
        """
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.socket = socket.create_server(address[:2], family=family, backlog=256)
        except OSError as error:
            raise ClusterError(
                f"cannot listen on {host}, port {port}: {error.strerror or error}. "
                f"Give another port (0 takes any free one), or an address of this machine."
            ) from error
        self.socket.setblocking(False)

    @property
    def address(self) -> Address:
        """Return the host and port that peers dial."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
