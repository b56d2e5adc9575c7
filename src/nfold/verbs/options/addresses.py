"""Reads where something of a run shall listen."""

from nfold.errors import PlanError
from nfold.verbs.options.target import LAST_PORT

LOOPBACK = "127.0.0.1"
"""Where nobody else's machine comes in."""


def read_address(given: object, flag: str) -> tuple[str, int]:
    """Read `PORT`, on this machine only, or `HOST:PORT`.

    Raises:
        PlanError: it is something else; the message begins with `flag` and it.
    """
    host, colon, port = str(given).rpartition(":")
    number = int(port) if port.isdecimal() and len(port) < 10 else None
    if isinstance(given, bool) or number is None or bool(colon) != bool(host):
        raise PlanError(f"{flag} {given}: it must be a port, as in {flag} 9464, or HOST:PORT")
    if number > LAST_PORT:
        raise PlanError(f"{flag} {given}: the last port is {LAST_PORT}. Use 0 for any free one.")
    return host.strip("[]") or LOOPBACK, number
