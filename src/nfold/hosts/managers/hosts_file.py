"""Reads a list of hosts, as Open MPI's: a host a line, `pi-1 slots=4`; # begins a comment."""

import re
from dataclasses import dataclass
from pathlib import Path

from nfold.core.options.whole import MOST_DIGITS, read_digits
from nfold.errors import ClusterError

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@:%-]*)")
_FORM = "Write a host a line, as in: pi-1 slots=4"
_KNOWN = ("slots", "max_slots", "max-slots")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedHost:
    """One line of a hosts file."""

    name: str
    """As ssh knows it: a name, an alias of the user's configuration, an address, USER@HOST."""
    slots: int | None = None
    """Ranks that it is meant for; None: the file does not say."""


def read_hosts(path: str | Path) -> tuple[ListedHost, ...]:
    """Read a hosts file.

    Raises:
        ClusterError: it cannot be read, names no host or one twice, or has another kind of line; with its number.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ClusterError(
            f"cannot read the hosts file {path}: {why}. Write a host a line, as in: pi-1 slots=4"
        ) from error
    return parse_hosts(text, str(path))


def parse_hosts(text: str, where: str) -> tuple[ListedHost, ...]:
    """Turn the text of a hosts file into hosts.

    Args:
        text: a host a line.
        where: the file's name, for messages.

    Raises:
        ClusterError: as `read_hosts`.
    """
    found: dict[str, int] = {}
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        host = _read_line(words, f"{where}, line {number}")
        if host.name in found:
            raise ClusterError(
                f"{where}, line {number}: {host.name} stands in line {found[host.name]} already. Name each host once; "
                "slots=N says how many ranks it takes."
            )
        found[host.name] = number
        hosts.append(host)
    if not hosts:
        raise ClusterError(f"the hosts file {where} names no host. {_FORM}")
    return tuple(hosts)


def _read_line(words: list[str], where: str) -> ListedHost:
    name, *rest = words
    if not _HOST.fullmatch(name):
        raise ClusterError(f"{where}: {name!r} is no name of a host. {_FORM}")
    slots = None
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals or key not in _KNOWN or not (number := read_digits(value)):
            raise ClusterError(
                f"{where}: {word!r} says nothing here. Behind a host stands slots=N, of at least 1 and at most "
                f"{MOST_DIGITS} digits, or nothing"
            )
        if key == "slots":
            slots = number
    return ListedHost(name=name, slots=slots)
