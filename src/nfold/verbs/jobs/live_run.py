"""Shows a run to other terminals while it goes on: its row in the list of the user's runs, and its state file."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from nfold.core.run_state import ListedRun, RunState
from nfold.errors import NfoldError
from nfold.machine.processes import started_here
from nfold.program import Program, ProgramSource
from nfold.runtime.control.commands import StepDone
from nfold.verbs.jobs.database import RunDatabase
from nfold.verbs.jobs.publisher import Publisher
from nfold.verbs.jobs.run_figures import RunFigures
from nfold.verbs.run_folder.folder import RunFolder

SHOWN_S = 1.0
"""Between two states: summing up costs processor time that the ranks want."""


class Live(Protocol):
    """What a job publishes of itself while it goes on."""

    def shown(self, note: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Show the job until the end of a block, and then how it ended; `note` takes lines for the user."""
        ...

    def take(self, happening: object) -> None:
        """Take in an event that the job's command received."""
        ...

    def noted(self, text: str) -> None:
        """Take in a line that the user is told."""
        ...

    def forget(self) -> None:
        """Remove the job from the list of runs: nothing of it is left."""
        ...


class Watcher(Protocol):
    """Is shown a run while it goes on. It holds nothing up and raises nothing: the run is what matters."""

    def take(self, happening: object) -> None:
        """Take in what the run's command was told."""
        ...

    def noted(self, text: str) -> None:
        """Take in what the user is told."""
        ...

    def show(self, state: RunState) -> None:
        """Take in how far the run is, about once a second, and once more at its end."""
        ...


class NotShown:
    """A job that no other terminal sees: a plan, a trial, a run of a comparison."""

    def shown(self, note: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Show nothing."""
        del note
        return contextlib.nullcontext()

    def take(self, happening: object) -> None:
        """Ignore an event."""

    def noted(self, text: str) -> None:
        """Ignore a line."""

    def forget(self) -> None:
        """Do nothing: the job was never listed."""


class LiveRun:
    """A run that is listed: from its beginning, or, where it goes on, from the first step that shows that it can."""

    def __init__(
        self,
        source: ProgramSource | Program,
        folder: RunFolder,
        *,
        goes_on: bool,
        database: RunDatabase | None,
        watchers: Sequence[Watcher] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Args:
        source: of the program.
        folder: of the run.
        goes_on: whether the folder held this run before.
        database: of the user's runs; None: there is no place for one.
        watchers: are shown the run, also before it is listed.
        clock: gives seconds, to say when it is time to show a new state.
        now: gives seconds since 1970.
        """
        self._folder, self._goes_on, self._database = folder, goes_on, database
        self._watchers, self._clock, self._now = watchers, clock, now
        self._figures = RunFigures()
        self._shown_s = clock()
        self._row = ListedRun(
            folder=os.path.realpath(folder.path),
            script=str(source) if isinstance(source, ProgramSource) else "",
            host=socket.gethostname(),
            pid=os.getpid(),
            started=started_here(),
            begun=now(),
            heard=now(),
        )
        self._is_begun = False

    @contextlib.contextmanager
    def shown(self, note: Callable[[str], None]) -> Iterator[None]:
        """Show the run until the end of a block, and then how it ended; `note` takes lines for the user."""
        self._publisher = Publisher(self._database, self._folder, note)
        if not self._goes_on:
            self._begin()
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            self._end(self._how_far())
            raise
        except BaseException as error:
            self._end("failed", _first_line(error))
            raise
        self._end(self._how_far())

    def take(self, happening: object) -> None:
        """Take in an event that the run's command received."""
        before = self._figures.phase
        self._figures.take(happening, self._now())
        for watcher in self._watchers:
            watcher.take(happening)
        if not self._is_begun and isinstance(happening, StepDone):
            self._begin()
        elif self._figures.phase != before or self._clock() - self._shown_s >= SHOWN_S:
            self._show()

    def noted(self, text: str) -> None:
        """Take in a line that the user is told."""
        self._figures.note(text, self._now())
        for watcher in self._watchers:
            watcher.noted(text)

    def forget(self) -> None:
        """Remove the run from the list of runs: nothing of it is left."""
        if self._is_begun:
            self._publisher.forget()

    def _begin(self) -> None:
        self._is_begun = True
        self._publisher.begin(*self._seen(), goes_on=self._goes_on)

    def _show(self) -> None:
        if self._is_begun or self._watchers:
            self._shown_s = self._clock()
            row, state = self._seen()
            if self._is_begun:
                self._publisher.show(row, state)

    def _how_far(self) -> Literal["done", "stopped"]:
        state = self._figures.state(self._now())
        return "done" if state.total_steps and state.step >= state.total_steps else "stopped"

    def _end(self, phase: Literal["done", "stopped", "failed"], cause: str = "") -> None:
        self._figures.phase = phase
        if cause:
            self.noted(cause)
        row, state = self._seen()
        if self._is_begun:
            self._publisher.end(replace(row, ending=phase, cause=cause, ended=state.at), state)

    def _seen(self) -> tuple[ListedRun, RunState]:
        state = self._figures.state(self._now())
        for watcher in self._watchers:
            watcher.show(state)
        row = replace(
            self._row,
            strategy=state.strategy,
            workers=state.workers,
            servers=state.servers,
            nodes=len({rank.node for rank in state.ranks}),
            step=state.step,
            total_steps=state.total_steps,
            loss=state.loss,
        )
        return row, state


def _first_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, NfoldError) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0]
