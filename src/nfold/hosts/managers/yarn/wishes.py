"""Reads what a user asks of YARN: `http://RM:8088/QUEUE?memory=4096&cpus=2&time=3600`."""

import urllib.parse
from dataclasses import dataclass

from nfold.errors import PlanError

_FIELDS = {"memory": "memory_mb", "cpus": "cpus", "time": "time_s"}
_FORM = "http://RM:8088/QUEUE?memory=4096&cpus=2&time=3600"


@dataclass(frozen=True, kw_only=True, slots=True)
class YarnWishes:
    """What `--on yarn:` says."""

    base: str
    """Of the ResourceManager's web interface."""
    queue: str = "default"
    """By its name or its path."""
    cpus: int = 2
    """YARN's cores for each agent."""
    memory_mb: int = 4096
    """For each agent and its ranks, MiB: a container that takes more is killed."""
    time_s: int | None = None
    """After which YARN ends all; None: its queue decides."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"YARN queue {self.queue}"


def read_wishes(where: str) -> YarnWishes:
    """Read what stands behind `yarn:`.

    Raises:
        PlanError: it is no such address, or a number is none.
    """
    parts = urllib.parse.urlsplit(where)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise PlanError(f"--on yarn:{where}: it must be the ResourceManager's web address, as in yarn:{_FORM}")
    given = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    if unknown := given.keys() - _FIELDS.keys():
        raise PlanError(f"--on yarn:{where}: there is no {min(unknown)}. It may say as much as yarn:{_FORM}")
    numbers = {_FIELDS[name]: _number(where, name, text) for name, text in given.items()}
    queue = urllib.parse.unquote(parts.path.strip("/")) or "default"
    return YarnWishes(base=f"{parts.scheme}://{parts.netloc}", queue=queue, **numbers)


def _number(where: str, name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise PlanError(f"--on yarn:{where}: {name}={text} must be a whole number from 1 on, as in yarn:{_FORM}")
    return int(text)
