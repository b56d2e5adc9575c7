"""Writes what others see of a run, from a thread of its own: neither a slow disk nor a locked file makes a run wait."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from nfold.core import codec
from nfold.core.run_state import ListedRun, RunState
from nfold.errors import NfoldError, RunError
from nfold.verbs.jobs.database import BEAT_S, RunDatabase
from nfold.verbs.run_folder.files import STATE
from nfold.verbs.run_folder.folder import RunFolder

LISTED_S = 5.0
"""Between two times that a run's row is written, in one phase: each is an fsync, and an SD card has only so many."""
END_S = 5.0
"""How long an end waits for the last words of a run."""

Seen = tuple[ListedRun, RunState]


class Publisher:
    """Writes the newest state that it was given. An error of the disk is told once; the next state is tried again."""

    def __init__(
        self,
        database: RunDatabase | None,
        folder: RunFolder,
        note: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        beat_s: float = BEAT_S,
    ) -> None:
        """Args:
        database: of the user's runs; None: there is no place for one.
        folder: of the run.
        note: takes a line for the user, from another thread.
        clock: gives seconds.
        now: gives seconds since 1970.
        beat_s: how often the run is listed while nothing is new.
        """
        self._database, self._folder, self._note = database, folder, note
        self._clock, self._now, self._beat_s = clock, now, beat_s
        self._changed = threading.Condition()
        self._next: Seen | None = None
        self._is_last = self._goes_on = False
        self._listed: ListedRun | None = None
        self._listed_s, self._listed_phase, self._is_row_old = float("-inf"), "", False
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="nfold-publisher", daemon=True)

    def begin(self, run: ListedRun, state: RunState, *, goes_on: bool) -> None:
        """List a run, and begin to write down its states."""
        self._goes_on = goes_on
        self._next = (run, state)
        self._thread.start()

    def show(self, run: ListedRun, state: RunState) -> None:
        """Have a state written soon. It replaces one that still waits to be written."""
        with self._changed:
            self._next = (run, state)
            self._changed.notify()

    def end(self, run: ListedRun, state: RunState) -> None:
        """Have the last state written, and wait for that, but not long."""
        with self._changed:
            self._next, self._is_last = (run, state), True
            self._changed.notify()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self._tell("list", f"its disk did not answer for {END_S:.0f} s")

    def forget(self) -> None:
        """Remove a run that has ended from the list, because nothing of it is left."""
        if self._database is not None and self._listed is not None and not self._thread.is_alive():
            try:
                self._database.forget(self._listed)
            except RunError as error:
                self._tell("list", str(error))

    def _run(self) -> None:
        seen: Seen | None = None
        is_last = False
        while not is_last:
            with self._changed:
                within_s = LISTED_S if self._is_row_old else self._beat_s
                is_new = self._changed.wait_for(lambda: self._next is not None, min(within_s, self._beat_s))
                seen, self._next, is_last = self._next or seen, None, self._is_last
            assert seen is not None, "a publisher begins with something"
            self._write(*seen, is_new=is_new, is_last=is_last)

    def _write(self, run: ListedRun, state: RunState, *, is_new: bool, is_last: bool) -> None:
        if is_new:
            self._is_row_old = True
            self._write_state(state)
        if self._clock() - self._listed_s >= LISTED_S or state.phase != self._listed_phase or is_last:
            self._listed_s, self._listed_phase, self._is_row_old = self._clock(), state.phase, False
            self._write_row(replace(run, heard=self._now()))

    def _write_state(self, state: RunState) -> None:
        try:
            codec.save(state, self._folder.path / STATE)
        except (OSError, NfoldError) as error:
            self._tell("state", f"cannot write {self._folder.path / STATE}: {error}")

    def _write_row(self, run: ListedRun) -> None:
        if self._database is None:
            return
        try:
            if self._listed is None:
                self._listed = self._database.begin(run, goes_on=self._goes_on)
            else:
                self._database.update(replace(run, number=self._listed.number))
        except RunError as error:
            self._tell("list", f"{error}")

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._note(f"note: {_LACKING[what]}: {text}")


_LACKING = {
    "list": "nfold ps may not show this run as it is",
    "state": "nfold top cannot show this run",
}
