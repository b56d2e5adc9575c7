"""What it takes to find the hosts of a run again whose command is gone: where they dial to, and what they prove.

It stands in the run's folder while the run trains on hosts that hold, for its owner alone to read.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfold.core import codec
from nfold.errors import NfoldError, PlanError
from nfold.runtime.control.spool import PARTIAL, Arrived
from nfold.transport.connecting.keepalive import BREAK_AFTER_S
from nfold.transport.connecting.token_file import drop_left_tokens, refuse_shared, write_owned
from nfold.verbs.run_folder.files import HELD

KEPT = ("python", "cpus", "gang", "hosts_for", "hosts_within", "protect", "hosts_last")
"""Options of hosts that are asked for again as they were; None: an earlier version did not write them down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldHosts:
    """The hosts of a run, as its command had asked for them."""

    host: str
    """Address that its coordinator listened on."""
    port: int
    token: str
    hold_s: float
    """How long hosts hold when the command is gone."""
    nodes: str
    """MIN:MAX."""
    on: str | None
    listen: str | None
    python: str | None = None
    cpus: int | None = None
    gang: bool | None = None
    hosts_for: float | str | None = None
    hosts_within: float | str | None = None
    protect: str | int | None = None
    hosts_last: float | str | None = None
    gone_s: float | None = None
    """When somebody found the command gone first, in seconds since 1970, since hosts were last heard; None: nobody."""

    @property
    def wishes(self) -> dict[str, Any]:
        """The options that ask for them again."""
        listen = None if self.listen is None else f"{self.host}:{self.port}"
        there = {"on": self.on, "nodes": self.nodes, "listen": listen, "port": self.port, "hold_for": self.hold_s}
        return there | {name: getattr(self, name) for name in KEPT}

    def until_s(self, now_s: float) -> float:
        """Return when no host can hold any more, in seconds since 1970: one that is cut off notices the loss late."""
        return (now_s if self.gone_s is None else self.gone_s) + BREAK_AFTER_S + self.hold_s

    def are_asked_for(self, asked: Mapping[str, Any]) -> bool:
        """Whether somebody who goes on with the run wants these hosts, and no others."""
        others = any(asked.get(name) for name in ("workers", "servers", "emulate", "debug", "place"))
        mine = {"on": self.on, "nodes": self.nodes, "listen": self.listen}
        return not others and all(asked.get(name) in (None, value) for name, value in mine.items())


def save_held(folder: Path, held: HeldHosts) -> None:
    """Write it down, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    half, text = folder / f"{HELD}{PARTIAL}", f"{codec.dumps(held, indent=1)}\n"
    write_owned(half, text)
    Arrived(half, len(text)).put(folder / HELD)


def read_held(folder: Path) -> HeldHosts | None:
    """Read it; None: the run has ended in order, or its hosts do not hold.

    Raises:
        PlanError: others than the owner may read or change it, or it is broken.
    """
    path = folder / HELD
    if not path.exists():
        return None
    with open(path, encoding="utf-8") as file:
        if why := refuse_shared(os.fstat(file.fileno()).st_mode):
            raise PlanError(f"{path} {why}. Type: chmod 600 {path}")
        try:
            return codec.loads(HeldHosts, file.read())
        except (codec.CodecError, UnicodeDecodeError) as error:
            raise PlanError(
                f"{path} is broken, so the hosts of the run that hold cannot be found: {error}. Remove it, and go on "
                f"from the last checkpoint: nfold train --resume {shlex.quote(str(folder))}"
            ) from error


def forget_held(folder: Path) -> None:
    """Remove it, and what commands that were killed have left of its token: the hosts are to end, or hold no longer."""
    with contextlib.suppress(OSError, NfoldError, ValueError):  # the folder may be gone, and the file may be garbled
        if (held := read_held(folder)) is not None:
            drop_left_tokens(held.token)
    with contextlib.suppress(OSError):
        (folder / HELD).unlink(missing_ok=True)
