"""Which emulations exist on this machine and who owns them, so that what a killed owner left is found and removed.

    /run/nfold/lock              held while someone looks around or takes a number
    /run/nfold/7/owner.json      process and its start time, which together no other process ever has

Namespaces and control groups carry the number in their names, so nothing else need be remembered.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nfold.errors import ClusterError
from nfold.launch.emulation.namespaces import MOST_EMULATIONS
from nfold.machine.processes import start_ticks

STATE = Path("/run/nfold")
_OWNER = "owner.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The process that an emulation belongs to."""

    pid: int
    start_ticks: int
    """When it started, in clock ticks since boot."""


def this_process() -> Owner:
    """Return this process as an owner."""
    ticks = start_ticks(os.getpid())
    assert ticks is not None, "this process runs"
    return Owner(pid=os.getpid(), start_ticks=ticks)


def is_dead(owner: Owner | None, look: Callable[[int], int | None] = start_ticks) -> bool:
    """Return whether an emulation has lost its owner, or never had one written down.

    Args:
        owner: as it was written down.
        look: returns when a process started, as `start_ticks` does.
    """
    return owner is None or look(owner.pid) != owner.start_ticks


class Registry:
    """The numbers of this machine's emulations, and who owns each. Processes take turns with a lock."""

    def __init__(self, state: Path = STATE) -> None:
        self._state = state

    def claim(self, me: Owner, clear: Callable[[int], None]) -> int:
        """Remove what dead owners left, then take a number that nobody has.

        Args:
            me: who will own it.
            clear: removes an emulation's namespaces and groups.

        Raises:
            ClusterError: all numbers are taken.
        """
        with self._alone():
            self._remove_dead(clear)
            taken = self._owners()
            free = [number for number in range(MOST_EMULATIONS) if number not in taken]
            if not free:
                raise ClusterError(f"{len(taken)} clusters are being emulated on this machine: no more are possible")
            self.folder(free[0]).mkdir(mode=0o700)
            (self.folder(free[0]) / _OWNER).write_text(json.dumps(asdict(me)), encoding="utf-8")
            return free[0]

    def sweep(self, clear: Callable[[int], None], restore: Callable[[], None]) -> None:
        """Remove what dead owners left.

        Args:
            clear: as in `claim`.
            restore: undoes what emulations have changed of the machine itself; called if none is left.
        """
        with self._alone():
            self._remove_dead(clear)
            self._restore(restore)

    def folder(self, number: int) -> Path:
        """Return an emulation's own folder."""
        return self._state / str(number)

    def release(self, number: int, restore: Callable[[], None]) -> None:
        """Give a number back; `restore` is that of `sweep`."""
        with self._alone():
            self._forget(number)
            self._restore(restore)

    def _restore(self, restore: Callable[[], None]) -> None:
        """Who begins an emulation has taken a number before, so that nobody is in the middle of it now."""
        if not self._owners():
            restore()

    def _forget(self, number: int) -> None:
        shutil.rmtree(self.folder(number), ignore_errors=True)

    def _remove_dead(self, clear: Callable[[int], None]) -> None:
        for number, owner in self._owners().items():
            if is_dead(owner):
                clear(number)
                self._forget(number)

    def _owners(self) -> dict[int, Owner | None]:
        numbers = [int(entry.name) for entry in self._state.iterdir() if entry.name.isdigit()]
        return {number: self._owner(number) for number in sorted(numbers)}

    def _owner(self, number: int) -> Owner | None:
        """Read who owns an emulation; None if its owner died before it could write that down."""
        try:
            return Owner(**json.loads((self.folder(number) / _OWNER).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._state.mkdir(mode=0o755, parents=True, exist_ok=True)
        with open(self._state / "lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
