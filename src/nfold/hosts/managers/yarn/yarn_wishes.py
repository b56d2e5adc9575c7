"""Reads what a user asks of YARN: `http://RM:8088/QUEUE?memory=4096`."""

import math
import urllib.parse
from dataclasses import dataclass, replace

from nfold.core.options.whole import read_digits
from nfold.errors import PlanError

_FORM = "http://RM:8088/QUEUE?memory=4096"


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


def read_wishes(where: str, cpus: int | None, time_s: float | None) -> YarnWishes:
    """Read what stands behind `yarn:`, and what options say.

    Args:
        where: as typed.
        cpus: of YARN's cores for each agent; None: as many as usual.
        time_s: after which YARN is to end all; None: its queue decides.

    Raises:
        PlanError: it is no such address, or its memory is no number.
    """
    parts = urllib.parse.urlsplit(where)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise PlanError(f"--on yarn:{where}: it must be the ResourceManager's web address, as in yarn:{_FORM}")
    wishes = YarnWishes(
        base=f"{parts.scheme}://{parts.netloc}",
        queue=urllib.parse.unquote(parts.path.strip("/")) or "default",
        time_s=None if time_s is None else math.ceil(time_s),
    )
    for name, text in urllib.parse.parse_qsl(parts.query, keep_blank_values=True):
        if name != "memory" or not (number := read_digits(text)):
            raise PlanError(
                f"--on yarn:{where}: {name}={text} is nothing to ask for. It may say as much as yarn:{_FORM}"
            )
        wishes = replace(wishes, memory_mb=number)
    return wishes if cpus is None else replace(wishes, cpus=cpus)
