"""Waits for agents that people start: from any machine that reaches this one, also from behind NAT."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from nfold.errors import ClusterError
from nfold.hosts.manager import Call, PlaceState
from nfold.transport.connecting.token_file import write_token

_MOST_SEEN = 8
"""Places that are listed as waiting: none is anybody's, so more say nothing."""


class ByHand:
    """Tells what to type; whoever types it fills the next place."""

    title = "hosts that join by hand"
    replaces = False
    most_time_s: float | None = None

    def __init__(self, token_file: Path, say: Callable[[str], None]) -> None:
        """Args:
        token_file: is written for whoever joins from this machine, and copied to others.
        say: is given lines for the user.
        """
        self._token_file, self._say = token_file, say
        self._count = 0

    def dry_run(self, call: Call, count: int) -> str:
        """Return what people would be told."""
        del count
        return self._told(call)

    def start(self, call: Call, count: int) -> None:
        """Write the token down, and say what to type.

        Raises:
            ClusterError: it cannot be written.
        """
        self._count += count
        try:
            write_token(self._token_file, call.token)
        except OSError as error:
            raise ClusterError(f"cannot write the token file {self._token_file}: {error.strerror}") from error
        self._say(self._told(call))

    def states(self) -> list[PlaceState]:
        """Return that places wait for somebody."""
        return [PlaceState(place=place, name="", stage="waiting") for place in range(min(self._count, _MOST_SEEN))]

    def release(self, place: int) -> None:
        """Do nothing: whoever came leaves when its agent is told to."""

    def last_lines(self, place: int) -> list[str]:
        """Return nothing: what agents say stays with whoever started them."""
        del place
        return []

    def close(self) -> None:
        """Remove the token file. Safe to call again."""
        with contextlib.suppress(OSError):
            self._token_file.unlink(missing_ok=True)

    def _told(self, call: Call) -> str:
        ways = [f"nfold join {host}:{port} --token-file {self._token_file}" for host, port in call.addresses]
        return "on each host, once the token file is there too, type: " + "   or: ".join(ways)
