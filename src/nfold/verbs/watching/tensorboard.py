"""Draws a run's curves in TensorBoard."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from nfold.core.run_state import RunState
from nfold.errors import PlanError
from nfold.runtime.control import commands as cmd
from nfold.verbs.run_folder.run_place import clear_away, place
from nfold.verbs.watching.event_records import scalars_record, session_record, version_record
from nfold.verbs.watching.event_writer import NAMES, EventWriter
from nfold.view.tables import PARTS


class TensorBoard:
    """Writes a point of the loss for each step, of metrics for each evaluation, and of the pace about every second."""

    def __init__(self, parent: Path, run: str, *, goes_on: bool, now: Callable[[], float] = time.time) -> None:
        """Args:
        parent: folder of the folders of several runs.
        run: what this run's is called.
        goes_on: whether event files that are there may be of earlier commands of the run.
        now: gives seconds since 1970.
        """
        self._flag, self._path, self._goes_on, self._now = f"--tensorboard {parent}", parent / run, goes_on, now
        self._next_step, self._shown_step, self._has_begun = 1, 0, False

    @contextlib.contextmanager
    def opened(self, note: Callable[[str], None]) -> Iterator[None]:
        """Write until the end of a block; `note` is told once what cannot be written, also from another thread.

        Raises:
            PlanError: the folder cannot be made, or holds another run.
        """
        made = self._make_folder()
        self._writer = EventWriter(self._path, note, now=self._now)
        try:
            yield
        finally:
            self._writer.end()
            clear_away(made)

    def take(self, happening: object) -> None:
        """Write what a step or an evaluation came to."""
        if isinstance(happening, cmd.Planned):
            self._next_step = happening.first_step + 1
        elif isinstance(happening, cmd.StepDone):
            self._add(happening.step + 1, {"loss": happening.loss})
        elif isinstance(happening, cmd.Evaluated):
            self._add(happening.step, dict(happening.metrics))
        elif isinstance(happening, cmd.KeepCheckpoint):
            self._writer.hasten()  # a run that is killed now goes on from here, and these points are not drawn again

    def noted(self, text: str) -> None:
        """Curves have no words."""

    def show(self, state: RunState) -> None:
        """Write the pace of the last steps."""
        if state.parts is None or state.samples_per_s is None or state.step == self._shown_step:
            return
        self._shown_step = state.step
        parts = {f"nfold/step_s/{name.replace(' ', '_')}": getattr(state.parts, field) for name, field in PARTS.items()}
        self._add(state.step, {"nfold/samples_per_s": state.samples_per_s, **parts})

    def _add(self, step: int, values: dict[str, float]) -> None:
        at = self._now()
        if not self._has_begun:
            self._has_begun = True
            self._writer.add(partial(version_record, at))
            self._writer.add(partial(session_record, at, self._next_step))
        self._writer.add(partial(scalars_record, at, step, values))

    def _make_folder(self) -> list[Path]:
        """Make the folder; return what was made."""
        _, made = place(self._path, "")
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            others = sorted(path.name for path in self._path.glob(NAMES))
            if not os.access(self._path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            clear_away(made)
            raise PlanError(
                f"{self._flag}: cannot write to {self._path}: {error.strerror}. Use another one."
            ) from error
        if others and not self._goes_on:
            raise PlanError(
                f"{self._flag}: {self._path} holds another run ({others[0]}), and TensorBoard would draw both as one. "
                "Use another one, or remove that folder."
            )
        return made
