"""What happened when: the lines of a run's history, in memory and, in batches, in its folder."""

import time
from collections.abc import Callable
from typing import Any

from nfold.runtime.control import commands as cmd
from nfold.verbs.run_folder.folder import RunFolder

WRITTEN_S = 0.2
"""History is written in batches, at most this old, and before every checkpoint."""

Line = dict[str, Any]


class HistoryWriter:
    """Keeps one line for each step and each evaluation."""

    def __init__(
        self, lines: list[Line], folder: RunFolder | None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Args:
        lines: of earlier sessions; those that come are added.
        folder: where they are written; None: nowhere.
        clock: gives seconds.
        """
        self._lines, self._folder, self._clock = lines, folder, clock
        self._unwritten: list[Line] = []
        self._since_s: float | None = None
        self._earlier_s: float = lines[-1].get("at_s", 0.0) if lines else 0.0
        self._written_s = 0.0

    @property
    def session_s(self) -> float:
        """The seconds since the first step of this session began."""
        return 0.0 if self._since_s is None else self._clock() - self._since_s

    def stepped(self, done: cmd.StepDone, step_s: float) -> None:
        """Add the line of a step that took `step_s` seconds."""
        if self._since_s is None:
            self._since_s = self._clock() - step_s
        self._keep({"step": done.step + 1, "epoch": done.epoch + 1, "loss": done.loss, "metrics": {}})

    def evaluated(self, evaluated: cmd.Evaluated, metrics: dict[str, float | None]) -> None:
        """Add the line of an evaluation, with the mean loss of its epoch's steps so far."""
        epoch = evaluated.epoch + 1
        losses = [
            line["loss"]
            for line in self._lines
            if line["epoch"] == epoch and not line["metrics"] and line["step"] <= evaluated.step
        ]
        loss = sum(losses) / len(losses) if losses else 0.0
        self._keep({"step": evaluated.step, "epoch": epoch, "loss": loss, "metrics": metrics})

    def write(self) -> None:
        """Write the lines to the folder that are not there yet."""
        if self._folder is not None and self._unwritten:
            self._folder.append_history(self._unwritten)
        self._unwritten, self._written_s = [], self._clock()

    def cut(self, last_step: int) -> None:
        """Write what is not written yet, and forget the lines after a step, which is played again."""
        self.write()
        self._lines[:] = [line for line in self._lines if line["step"] <= last_step]

    def _keep(self, line: Line) -> None:
        """Keep a line, and when it was: seconds since training began, those of earlier sessions included."""
        line["at_s"] = round(self._earlier_s + self.session_s, 4)
        self._lines.append(line)
        self._unwritten.append(line)
        if self._clock() - self._written_s >= WRITTEN_S:
            self.write()
