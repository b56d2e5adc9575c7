"""Shows a run while it goes on: one progress line on stderr."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO, cast

from nfold.analysis.measured.recent_steps import RecentSteps
from nfold.core.text.units import count
from nfold.planning.choosing.early_checks import tried_note
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd
from nfold.view import BesideLine, Look, ProgressLine, RunProgress, threads_of

REDRAW_S = 0.1
"""Summing up costs processor time that the ranks want."""


def look(stream: TextIO) -> Look:
    """Return how text on a stream will be seen."""
    is_terminal = stream.isatty()
    width = shutil.get_terminal_size((110, 24)).columns if is_terminal else 110
    return Look(width=width, is_terminal=is_terminal, color=is_terminal and not os.environ.get("NO_COLOR"))


class TerminalObserver:
    """An observer that keeps one line up to date, or writes plain lines where there is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stderr
        seen = look(stream)
        self._line = ProgressLine(stream, is_terminal=seen.is_terminal, clock=time.monotonic, width=seen.width)
        self._is_terminal = seen.is_terminal
        self._recent: RecentSteps | None = None
        self._total, self._epochs = 1, EpochSteps.even(1)
        self._held: RunProgress | None = None
        self._shown_s = 0.0
        self._noted: set[str] = set()

    def planned(self, planned: cmd.Planned, folder: Path | None) -> None:
        """Say what will run. Where another plan follows a first one, what was noted of that is not noted again."""
        plan = planned.plan
        self._total, self._epochs = planned.total_steps, planned.epochs
        self._recent = RecentSteps(plan)
        servers = f" and {count(plan.servers, 'server')}" if plan.servers else ""
        where = f" -> {folder}" if folder else ""
        graph = planned.known.graph
        tried = tried_note(graph.unproved, plan)
        for note in (*([tried] if tried else []), *graph.notes, *plan.notes, *planned.foretold):
            if note not in self._noted:
                self._line.note(f"note: {note}")
                self._noted.add(note)
        self._line.note(
            f"{plan.strategy}, {count(plan.workers, 'worker')}{servers}, "
            f"{count(plan.chunks, 'chunk')} of a batch of {plan.batch_size}, {threads_of(plan)}{where}"
        )

    def stepped(self, done: cmd.StepDone) -> None:
        """Move the line. The last one of an epoch waits for the metrics that may follow."""
        self._release()
        assert self._recent is not None, "a plan comes before its steps"
        self._recent.keep(done.parts)
        ends_epoch = self._epochs.is_end(done.step + 1) or done.step + 1 == self._total
        now_s = time.monotonic()
        if not ends_epoch and now_s - self._shown_s < REDRAW_S:
            return
        self._shown_s = now_s
        progress = self._progress(done.step + 1, done.loss)
        if ends_epoch:
            self._held = progress
        else:
            self._line.update(progress)

    def evaluated(self, evaluated: cmd.Evaluated) -> None:
        """End an epoch's line with its metrics."""
        held = self._held or self._progress(evaluated.step, None)
        self._held = replace(held, metrics=evaluated.metrics)
        self._release()

    def _release(self) -> None:
        if self._held is not None:
            self._line.update(self._held)
            self._held = None

    def noted(self, text: str) -> None:
        """Write a line of its own."""
        self._line.note(text)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the run until the end of a block, above the line what this process prints to the same terminal.

        With --debug that is the user's program. Its output stays on the terminal, since it may hold a debugger's.
        """
        with contextlib.ExitStack() as ending:
            ending.callback(self.close)
            if self._is_terminal:
                for name, redirect in (("stdout", contextlib.redirect_stdout), ("stderr", contextlib.redirect_stderr)):
                    stream: TextIO = getattr(sys, name)
                    if stream.isatty():
                        beside = ending.enter_context(contextlib.closing(BesideLine(stream, self._line)))
                        ending.enter_context(redirect(cast("TextIO", beside)))
            yield

    def close(self) -> None:
        """Leave the cursor at the start of a line."""
        self._release()
        self._line.close()

    def _progress(self, step: int, loss: float | None) -> RunProgress:
        assert self._recent is not None, "a plan comes before its steps"
        epoch = self._epochs.epoch(step - 1)
        return RunProgress(
            epoch=epoch + 1,
            num_epochs=self._epochs.begun(self._total),
            fraction=(self._epochs.position(step - 1) + 1) / self._epochs.steps(epoch),
            loss=loss,
            samples_per_s=self._recent.samples_per_s,
            parts=self._recent.parts,
            eta_s=self._recent.left_s(self._total - step),
        )
