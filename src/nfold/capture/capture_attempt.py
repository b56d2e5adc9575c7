"""Tries one way to capture a program after another, until one passes the gate.

fx                  small operators with the user's names
torch.export        for control flow on shapes and the like, which fx refuses
fx, parts opaque    statements that decide on values, and modules that cannot be traced or go wrong, stay whole
opaque              the whole model and loss are one operator: data parallelism still works
"""

import contextlib
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from nfold.capture.batches.example import GATE_SIZE, Example
from nfold.capture.batches.tree import tensors_of
from nfold.capture.computing.random import seed_all
from nfold.capture.cutting.captured import Captured
from nfold.capture.cutting.operator_cut import cut
from nfold.capture.describe import describe
from nfold.capture.fewest_whole import fewest_whole
from nfold.capture.gate import pass_gate
from nfold.capture.program.gradients_taken import line_of_gradient
from nfold.capture.program.module_outputs import outputs_of
from nfold.capture.program.program_graph import Loss, Traced
from nfold.capture.program_facts import ProgramFacts
from nfold.capture.statements.holding import Holding
from nfold.capture.tracing.exporting import export
from nfold.capture.tracing.fx_tracing import TraceRefused, is_leaf, trace
from nfold.capture.tracing.observe import observe
from nfold.capture.tracing.plain_errors import first_line, plainly, told_held, told_whole
from nfold.core.graph import ModelGraph
from nfold.core.outputs import first_difference
from nfold.errors import InternalError

_CUT_ELSE = "cut into operators, it computes something else of one alone"
_MOST_OPAQUE = 8
"""Modules to keep whole one after another before the whole model is."""
_MOST_TRIALS = 32
"""Gates to find out in which modules a trace goes wrong."""

_OF_ITS_OWN = ". A module of its own for that line (for the whole loop, where it leaves one) would be kept whole alone"


class CaptureAttempt:
    """Tries one method of capture after another on one program."""

    def __init__(
        self,
        model: nn.Module,
        fresh: Callable[[], nn.Module],
        loss: Loss,
        example: Example,
        facts: ProgramFacts,
        beside: Sequence[str] = (),
    ) -> None:
        self._model, self._fresh, self._loss, self._example, self._facts = model, fresh, loss, example, facts
        self._whole = tuple(dict.fromkeys((*facts.stateful, *facts.hooked, *([""] if beside or example.only else []))))
        """Modules that no trace would run as they are."""
        self._kept = list(self._whole)
        self._notes: list[str] = []
        if beside:
            more = f" and {len(beside) - 1} more weights" if len(beside) > 1 else ""
            self._notes.append(
                f"the loss reads {beside[0]}{more} past the outputs of the model, and only who holds all weights can. "
                "Return what it needs of them from forward, and the model can be cut"
            )

    def first_good(self) -> Captured:
        """Return the first capture that passes the gate.

        Raises:
            InternalError: not even the whole model as one operator does.
        """
        is_wrong, overcome = False, set[str]()
        if self._example.varying:
            self._notes.append(
                f"its batches are of unlike shapes, and activations of an unknown size cannot be sent: "
                f"{self._example.varying}. The model stays whole; to cut it, pad to one length in collate"
            )
        for traced in self.traces():
            if traced.method == "opaque" and is_wrong and (found := self._mostly_cut()):
                return found
            if traced.method == "opaque" and not self._example.varying:
                has_chunks = not self._facts.indivisible
                self._notes = told_whole(self._notes, self._line_of_gradient, has_chunks=has_chunks)
            bound = self.bind(traced)
            captured, failure = self._gated(bound) if bound else (None, "")
            if captured and not failure:
                return captured if captured.graph.whole else _without_notes(captured, overcome)
            if captured and traced.method == "opaque":  # the user's own module is one operator here
                where = self._unlike_itself() or failure
                return _with_note(
                    captured, f"the model does not equal itself when it is called again with the same seed: {where}"
                )
            if captured:
                overcome.add(note := f"operator by operator, the model would compute something else: {failure}")
                self._note(note)
            is_wrong = is_wrong or traced.method == "fx"
        raise InternalError("not even the whole model as one operator could be captured")

    def _gated(self, captured: Captured) -> tuple[Captured, str]:
        """Return a capture that says whether a chunk may have a single sample, and why it does not pass the gate."""
        may_be_one = not captured.graph.why_pairs
        found = pass_gate(captured, self._fresh, self._loss, self._example, alone=may_be_one)
        if may_be_one and (found.failure or found.is_other_alone):
            captured = captured.with_graph(replace(captured.graph, why_pairs=_CUT_ELSE))
        return captured, found.failure

    def _unlike_itself(self) -> str:
        """Say which module puts out something else when the model is called again, if forward shows it."""
        batches = [self._example.batch(GATE_SIZE, 0) for _ in range(2)]
        if not all(map(torch.equal, *(tensors_of(batch) for batch in batches))):
            return "its data set draws other samples each time"
        calls = []
        for batch in batches:
            seed_all(0)
            calls.append(outputs_of(self._fresh(), self._loss, batch))
        return first_difference(*calls)

    def _line_of_gradient(self) -> str:
        return line_of_gradient(self._fresh(), self._loss, self._example.batch(GATE_SIZE))

    def _mostly_cut(self) -> Captured | None:
        """Return a capture that keeps whole no more of the user's modules than it takes, if that is enough."""
        outermost = self._outermost()
        found = outermost and fewest_whole(
            outermost,
            right=self._right,
            within=self._within,
            kind=lambda path: type(self._model.get_submodule(path)),
            most_trials=_MOST_TRIALS,
        )
        if not found:
            return None
        best = found.best
        for names, why in (
            (found.wrong, "since operator by operator they go wrong"),
            (found.untried, "for lack of time to look into"),
        ):
            best = _with_note(best, f"kept whole, {why}: {', '.join(names)}") if names else best
        return best

    def _outermost(self) -> list[str]:
        """Return the outermost modules that are called: of one whose modules are called past it, those."""
        kept = self._within("")
        while True:
            called = {path for traced in self.with_whole(kept) for path in traced.opaque}
            passed = [path for path in kept if path not in called]
            if not called or not passed:
                return kept
            kept = [inner for path in kept for inner in (self._within(path) if path in passed else (path,))]

    def _within(self, path: str) -> list[str]:
        """Return the modules right inside of one that a trace goes into; those of a list are its owner's."""
        found = []
        for name, module in self._model.get_submodule(path).named_children():
            inner = f"{path}.{name}" if path else name
            if type(module) in (nn.ModuleList, nn.ModuleDict):
                found += self._within(inner)
            elif not is_leaf(module) and inner not in self._kept:
                found.append(inner)
        return found

    def _right(self, kept: Sequence[str]) -> Captured | None:
        """Return the capture with some modules whole, if it passes the gate."""
        notes = list(self._notes)
        for traced in self.with_whole(kept):
            bound = self.bind(traced)
            captured, failure = self._gated(bound) if bound else (None, "")
            if captured and not failure:
                return captured
        self._notes = notes
        return None

    def with_whole(self, modules: Iterable[str]) -> Iterator[Traced]:
        """Yield the program with some modules whole, beside those that cannot be traced; statements whole first."""
        opaque, held = (*self._kept, *modules), True
        with contextlib.suppress(TraceRefused):  # then it is none
            traced = self._traced(opaque)
            held = bool(traced.notes)
            yield traced
        if held:
            with contextlib.suppress(TraceRefused):
                yield self._traced(opaque, holds=False)

    def bind(self, traced: Traced) -> Captured | None:
        """Cut a trace and name its parts; None if it cannot be played or cut."""
        try:
            plays = observe(traced, self._fresh, self._example)
            pieces = cut(traced, plays, whole=traced.method == "opaque", is_proved=not self._facts.unproved)
        except Exception as error:
            why = str(error) if isinstance(error, TraceRefused) else f"it {plainly(error)}"
            self._note(f"the model cannot be cut into operators: {why}")
            return None
        found = describe(replace(traced, notes=(*self._notes, *traced.notes)), pieces, plays, self._facts, self._model)
        if shared := self._written_by_some(found.graph):
            self._note(f"the model cannot be cut into operators: forward writes to {shared}, which others use")
            return None
        return found

    def _note(self, text: str) -> None:
        """Note it once, however often it is tried."""
        if text not in self._notes:
            self._notes.append(text)

    def _written_by_some(self, graph: ModelGraph) -> str:
        """Return a weight that forward writes to and several operators use: each rank would have another one."""
        return next((each.name for each in graph.parameters if each.written and len(each.users) > 1), "")

    def _traced(self, opaque: tuple[str, ...], *, holds: bool = True) -> Traced:
        """Trace the program, with statements whole where that lets the trace go on.

        Raises:
            TraceRefused: there are none, or they did not help.
        """
        holding, notes = Holding(), list[str]()
        while True:
            try:
                traced = trace(self._fresh(), self._loss, self._example, opaque=opaque, holding=holding)
                return replace(traced, notes=tuple(notes))
            except TraceRefused as refusal:
                name = holding.take(refusal.__cause__ or refusal) if holds else ""
                if not name and holding.why_not:
                    refusal.args = (
                        f"{first_line(refusal)}, and is no operator of its own, since it {holding.why_not}",
                    )
                if not name:
                    raise
                notes.append(told_held(name, refusal))

    def traces(self) -> Iterator[Traced]:
        """Yield the program as each method sees it, the whole model as one operator last."""
        self._kept = kept = list(self._whole)
        exportable = not kept
        while "" not in kept and not self._example.varying and len(kept) <= len(self._whole) + _MOST_OPAQUE:
            refusal = yield from self._ways(tuple(kept), exportable=exportable)
            if refusal is None:
                break
            module = _outside(refusal.module, kept)
            told = first_line(refusal)
            advice = _OF_ITS_OWN if "`" in told and not module else ""  # where a line is to blame
            self._notes.append(f"{module or 'the model'} is kept whole: {told}{advice}")
            exportable = False
            kept.append(module)
        yield replace(trace(self._fresh(), self._loss, self._example, opaque=("",)), method="opaque")

    def _ways(self, kept: tuple[str, ...], *, exportable: bool) -> Generator[Traced, None, TraceRefused | None]:
        """Yield the program as it is followed wholly, then with statements whole; return why it is not followed."""
        refused: TraceRefused | None = None
        try:
            yield self._traced(kept, holds=False)
        except TraceRefused as refusal:
            refused = refusal
        if exportable and (refused is None or refused.exportable):
            yield from self._exported()
        if refused is None:
            return None
        try:
            yield self._traced(kept)
        except TraceRefused as refusal:
            refused = refusal
        return refused

    def _exported(self) -> Iterator[Traced]:
        with contextlib.suppress(TraceRefused):  # why is told already, in words of the program
            yield export(self._fresh(), self._loss, self._example)


def names_of(captured: Captured) -> list[str]:
    """Return the names of a captured program's operators, in their order."""
    return [operator.name for operator in captured.graph.operators]


def _with_note(captured: Captured, note: str) -> Captured:
    return captured.with_graph(replace(captured.graph, notes=(*captured.graph.notes, note)))


def _without_notes(captured: Captured, overcome: Container[str]) -> Captured:
    """Leave out what went wrong on the way to a capture that cuts all of the model."""
    notes = tuple(note for note in captured.graph.notes if note not in overcome)
    return captured.with_graph(replace(captured.graph, notes=notes))


def _outside(module: str, kept: list[str]) -> str:
    """Return the innermost module around one that is not kept whole already."""
    while module and module in kept:
        module = module.rpartition(".")[0]
    return module
