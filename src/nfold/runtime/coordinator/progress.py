"""Joins what the ranks report into steps, evaluations and checkpoints, and says how far ranks may run ahead."""

from collections import deque
from dataclasses import replace
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from nfold.core import codec
from nfold.core.plan import Plan
from nfold.core.trace import ReductionParts, Span, StepParts, StepTrace, SystemSample
from nfold.planning.asynchronous.asynchronous_strategies import serving_ranks
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.exact_total import total
from nfold.runtime.control.ticket_rows import aligned

if TYPE_CHECKING:
    from nfold.runtime.control.spool import Arrived

WINDOW_S = 0.3
FIRST_WINDOW = 4
"""Steps that ranks may run ahead before a step time is known."""
DRIFT = 16
"""Steps that workers of an asynchronous plan may be ahead of what all have reported: a rank tells of a step when it has
done its own slice, so others that are f times as fast are about f steps further."""
_MEDIAN_STEPS, _MEAN_STEPS = 8, 16
"""That say how long one takes, in a synchronous plan and in an asynchronous one."""
_MOST_PENDING = 4
"""Evaluations and checkpoints that an asynchronous run may have before it: nobody can call its steps back, and what
stands between them may take far longer than they do."""


class Progress:
    """Joins the ranks' reports into steps, evaluations and checkpoints."""

    def __init__(self, ranks: tuple[int, ...], chosen: Plan, first_step: int, epochs: EpochSteps) -> None:
        self._ranks, self._plan, self._epochs = ranks, chosen, epochs
        self.done = first_step
        self.kept: int | None = None
        """Steps that the last checkpoint holds."""
        self.pending: list[tuple[int, str, set[int]]] = []
        """Evaluations, checkpoints, models and averages that were ordered: after which step, what, who owes it."""
        self._reports: dict[int, dict[int, dict[str, Any]]] = {}
        self._losses: dict[int, dict[int, dict[str, Any]]] = {}
        """What ranks told of steps before these were over, by step and rank."""
        self._sent_bytes: dict[int, int] = {}
        """In the last step that each rank has reported."""
        self._sums: dict[int, list[dict[str, list[float]]]] = {}
        """By the step after which it was evaluated."""
        self._files: dict[tuple[int, str], Arrived] = {}
        """Of checkpoints, models and averages."""
        self.unkept = ""
        """Why nobody could go on from checkpoints any more."""
        self._last_s: deque[float] = deque(maxlen=_MEDIAN_STEPS if chosen.asynchrony is None else _MEAN_STEPS)
        """Seconds of the last steps."""
        self._told: set[str] = set()

    @property
    def is_asynchronous(self) -> bool:
        """Whether nobody waits for a common step."""
        return self._plan.asynchrony is not None

    @property
    def step_s(self) -> float | None:
        """Seconds of a step: the median of the last ones, since one after a checkpoint finds its samples loaded.

        Where nobody waits for a common step it is the mean: any one may be over in the moment in which another one is,
        or long after it. None: there was none.
        """
        if not self._last_s:
            return None
        return median(self._last_s) if self._plan.asynchrony is None else mean(self._last_s)

    def window(self) -> int:
        """The number of steps that ranks may run ahead of what all of them have reported."""
        if self._plan.asynchrony is not None and len(self.pending) >= _MOST_PENDING:
            return 0
        least = 2 if self._plan.asynchrony is None else DRIFT
        if (step_s := self.step_s) is None:
            return max(least, FIRST_WINDOW)
        return max(least, round(WINDOW_S / max(step_s, 1e-6)))

    def take(self, event: ev.Received) -> list[cmd.Command]:
        """Take in a rank's report; return the commands for what is complete with it."""
        kind = event.message["is"]
        if kind == "steps":
            for report in event.message["steps"]:
                parts = StepParts.from_row(report["parts"])
                self._reports.setdefault(report["step"], {})[event.rank] = {**report, "parts": parts}
                self._sent_bytes[event.rank] = parts.sent_bytes
            if (under_way := event.message["under_way"]) is not None and under_way["step"] >= self.done:
                self._losses.setdefault(under_way["step"], {})[event.rank] = under_way
            notes = [note for report in event.message["steps"] for note in report["notes"]]
            samples = tuple(SystemSample.from_row(row) for row in event.message["samples"])
            sampled = [cmd.Sampled(samples)] if samples else []
            return [*self._tell(notes), *sampled, *self._complete_steps()]
        if kind == "moved":
            return [cmd.Moved(event.message["bytes"], event.message["seconds"], beside_training=True)]
        if kind in ("evaluated", "checkpoint", "model", "average"):
            return self._complete_pending(event, kind)
        return []

    def _tell(self, notes: list[str]) -> list[cmd.Command]:
        """Tell what any rank notes, each thing once."""
        new = [text for text in dict.fromkeys(notes) if text not in self._told]
        self._told.update(new)
        return [cmd.Noted(f"note: {text}") for text in new]

    def _complete_steps(self) -> list[cmd.Command]:
        done: list[cmd.Command] = []
        while len(self._reports.get(self.done, {})) == len(self._ranks):
            done.append(self._count())
        return done

    def _count(self) -> cmd.StepDone:
        """Count the next step, which all have reported."""
        step, self.done = self.done, self.done + 1
        self._losses.pop(step, None)
        return self._step(step, self._reports.pop(step))

    @property
    def countable(self) -> int:
        """Steps that could count if they are over: all who work have told their losses of each that is not reported."""
        step, working = self.done, set(self._plan.placement.working)
        while working <= self._reports.get(step, {}).keys() | self._losses.get(step, {}).keys():
            step += 1
        return step

    def count_to(self, step: int) -> list[cmd.Command]:
        """Count steps that are over, though some ranks cannot report them any more: what these did in them is unknown.

        Args:
            step: of them, up to `countable`.
        """
        done: list[cmd.Command] = []
        while self.done < step:
            reports = self._reports.setdefault(self.done, {})
            longest_s = max((report["parts"].step_s for report in reports.values()), default=self.step_s or 0.0)
            for rank in set(self._ranks) - reports.keys():
                reports[rank] = self._unreported(rank, longest_s)
            done.append(replace(self._count(), is_late=True))
        return done

    def _unreported(self, rank: int, step_s: float) -> dict[str, Any]:
        """Stand in for the report of a rank that is lost, or was called off, before it had made one."""
        told = self._losses.get(self.done, {}).get(rank, {"losses": [], "samples": 0})
        parts = StepParts(
            step=self.done,
            rank=rank,
            step_s=step_s,
            **dict.fromkeys(("input_s", "forward_s", "backward_s", "update_s", "communication_s"), 0.0),
            other_s=step_s,
            sent_bytes=self._sent_bytes.get(rank, 0),
            samples=told["samples"],
        )
        return {"parts": parts, "losses": told["losses"], "reductions": [], "spans": [], "begin_s": 0.0, "notes": []}

    def _step(self, step: int, reports: dict[int, dict[str, Any]]) -> cmd.StepDone:
        parts = tuple(reports[rank]["parts"] for rank in self._ranks)
        if self._plan.asynchrony is not None:
            parts = aligned(parts, serving_ranks(self._plan.reductions)[0])
        self._last_s.append(max(part.step_s for part in parts))
        losses = sorted(pair for report in reports.values() for pair in report["losses"])
        loss = sum(value for _, value in losses)
        reductions = tuple(ReductionParts.from_row(row) for rank in self._ranks for row in reports[rank]["reductions"])
        return cmd.StepDone(step, self._epochs.epoch(step), loss, parts, self._trace(step, reports, parts), reductions)

    def _trace(self, step: int, reports: dict[int, dict[str, Any]], parts: tuple[StepParts, ...]) -> StepTrace | None:
        if not any(report["spans"] for report in reports.values()):
            return None
        spans = [codec.decode(Span, span) for rank in self._ranks for span in reports[rank]["spans"]]
        return StepTrace(
            step=step,
            origin="measured",
            step_s=tuple(part.step_s for part in parts),
            spans=tuple(spans),
            begin_s=tuple(reports[rank]["begin_s"] for rank in self._ranks),
        )

    def _complete_pending(self, event: ev.Received, kind: str) -> list[cmd.Command]:
        """Replies come in the order of the orders, rank by rank; each belongs to the oldest that still waits for it."""
        for entry in self.pending:
            step, what, missing = entry
            if what == kind and event.rank in missing:
                missing.discard(event.rank)
                break
        else:
            return []
        commands: list[cmd.Command] = []
        if event.file:
            self._files[step, kind] = event.file
        if kind == "checkpoint":
            self.unkept = self.unkept or event.message.get("unkept", "")
        if kind == "evaluated" and event.message["sums"]:
            self._sums.setdefault(step, []).append(event.message["sums"])
        if not missing:
            self.pending.remove(entry)
            if kind == "checkpoint":
                # Only now have all ranks reported the steps before it, so that history and checkpoint agree.
                commands.append(self._checkpoint(step, self._files.pop((step, kind))))
                self.kept = step
            if kind == "model":
                commands.append(cmd.KeepBest(step, self._files.pop((step, kind))))
            if kind == "average":
                commands.append(cmd.KeepAverage(step, self._files.pop((step, kind))))
            if kind == "evaluated":
                commands.append(cmd.Evaluated(step, self._epochs.epoch(step - 1), _means(self._sums.pop(step, []))))
        return commands

    def _checkpoint(self, step: int, file: "Arrived") -> cmd.Command:
        return cmd.Unkept(step, file, self.unkept) if self.unkept else cmd.KeepCheckpoint(step, file)


def _means(parts: list[dict[str, list[float]]]) -> dict[str, float]:
    """Join the ranks' sums into means; a value may be NaN or infinite."""
    counts = {name: sum(part[name][1] for part in parts) for name in parts[0]}
    sums = {name: [value for part in parts for value in (part[name][0], *part[name][2:])] for name in parts[0]}
    return {name: total(sums[name]) / count for name, count in counts.items() if count}
