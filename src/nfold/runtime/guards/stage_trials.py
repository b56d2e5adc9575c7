"""Tries again while a cut model trains that samples do not see each other: each rank what it computes itself.

A run of operators is tried on what really flows through it: the activations of a chunk together and in parts, and the
gradients that came back for them. Where every run acts within samples, the model does, so no rank needs it whole.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.computing.random import undisturbed
from nfold.capture.cutting.captured import Captured
from nfold.capture.independence.sample_axes import SampleAxis, find_sample_axes
from nfold.capture.independence.stage_trial import Stage, StageCut, Values, why_stage_unlike
from nfold.capture.program.building import build_model
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.core.graph import ModelGraph
from nfold.core.schedule import Segment
from nfold.errors import one_line
from nfold.planning.scheduling.segments import INPUTS
from nfold.program import Program, describe
from nfold.runtime.guards.seen_inputs import SeenInputs
from nfold.runtime.guards.some_samples import Read, Samples, all_and_some, cut_batch, is_rows
from nfold.runtime.guards.trial_occasions import Occasions

_MARGIN = 0.1
"""Activations are unlike all before when they go that part of their range beyond it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageFlow:
    """The activations, and the activation gradients, of one chunk at the ends of a run of operators."""

    step: int
    size: int
    """Samples of the chunk."""
    inputs: Values
    activation_gradients: Values
    """By the names of outputs, the loss apart."""
    read: Read
    """The chunk's samples, for a program that joins them itself."""


class StageTrials:
    """The trials of one rank on runs of operators that it computes."""

    def __init__(
        self,
        program: Program,
        model: nn.Module,
        captured: Captured,
        segments: Iterable[Segment],
        example: Example,
        device: torch.device,
        *,
        parameters: Mapping[str, nn.Parameter],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Find out where in the tensors between operators the samples lie, with all weights of the model.

        Args:
            program: the user's, with a checked loss.
            model: built by it; nothing is let go yet, and nobody holds the addresses of its weights.
            captured: the same.
            segments: the runs of operators, as the schedule numbers them.
            example: where batches come from.
            device: where to compute.
            parameters: by the names of the captured graph, of which some are rows of the model's.
            clock: seconds.
        """
        self._program, self._device = program, device
        self._occasions = Occasions(clock)
        self._seen: dict[int, tuple[SeenInputs, SeenInputs]] = {}
        # Who runs all operators, none of them in parts, is tried as a whole.
        count = len(captured.graph.operators) + captured.graph.is_split
        runs = {index: run for index, run in enumerate(segments) if len(run.operators) < count}
        axes, why_none = self._axes(captured, runs, model, example)
        self._stages = {
            index: stage
            for index, run in runs.items()
            if (stage := _stage(captured, run, axes, parameters)) is not None
        }
        left = [run for index, run in runs.items() if index not in self._stages]
        if left:
            self._occasions.note(_told_untried(captured.graph, left, axes, why_none))

    def _axes(
        self, captured: Captured, runs: Mapping[int, Segment], model: nn.Module, example: Example
    ) -> tuple[dict[str, SampleAxis], str]:
        graph = captured.graph
        names = [name for run in runs.values() for name in (*run.inputs, *run.outputs, *_scored(graph, run))]
        between = [name for name in dict.fromkeys(names) if name not in (*INPUTS, graph.loss)]
        copies = fresh_copies(model, lambda: build_model(self._program, self._device), lazy=True)
        try:
            with undisturbed():
                return find_sample_axes(captured, copies, example, between), ""
        except Exception as error:  # what cannot be tried is told, and no reason to end a run
            return {}, one_line(describe(error))

    def look(self, model: nn.Module, index: int, flow: StageFlow) -> None:
        """Compare the samples of a chunk, if it is time or if what comes in is unlike all before.

        Args:
            model: the rank's, with the weights of now.
            index: which run of operators.
            flow: of the chunk.

        Raises:
            ProgramError: they see each other.
        """
        stage = self._stages.get(index)
        if stage is None:
            return
        new = self._new_samples(index, stage, flow)
        is_due = self._occasions.is_due(index, flow.step, is_new=bool(new))
        weights = (*model.parameters(), *stage.rows.values())
        if is_due and self._occasions.has_room(weights, self._device, flow.step):
            self._occasions.compare(index, flow.step, lambda: self._compare(stage, model, flow, new))

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes for the user since the last call."""
        return self._occasions.take_notes()

    def _new_samples(self, index: int, stage: Stage, flow: StageFlow) -> list[int]:
        data, activations = self._seen.setdefault(index, (SeenInputs(), SeenInputs(_MARGIN)))
        given = {name: value for name, value in flow.inputs.items() if name in INPUTS}
        axes = {name: stage.axes[name] for name in stage.inputs if name not in INPUTS}
        rows = {
            name: axis.rows(flow.inputs[name].detach()) for name, axis in axes.items() if axis.dimension is not None
        }
        return sorted({*data.new_samples(given, flow.size), *activations.new_samples(rows, flow.size)})

    def _compare(self, stage: Stage, model: nn.Module, flow: StageFlow, new: list[int]) -> str:
        cuts = [self._cut(stage, flow, samples) for samples in all_and_some(flow.size, new)]
        copies = fresh_copies(model, lambda: build_model(self._program, self._device))
        with undisturbed():
            return why_stage_unlike(stage, copies, *cuts)

    def _cut(self, stage: Stage, flow: StageFlow, samples: Samples) -> StageCut:
        wholes, *parts = (_taken(stage.axes, flow.inputs, places) for places in (samples.places, *samples.parts))
        if any(name in INPUTS for name in stage.inputs):
            inputs, targets = (flow.inputs.get(name, ()) for name in INPUTS)
            own = flow.read if self._program.collate is not None or not is_rows((inputs, targets)) else None
            batch = cut_batch((inputs, targets), flow.size, samples, own, self._device)
            for values, pair in zip((wholes, *parts), (batch.whole, *batch.parts), strict=True):
                values.update(zip(INPUTS, pair, strict=True))
        gradients = [
            _taken(stage.axes, flow.activation_gradients, places) for places in (samples.places, *samples.parts)
        ]
        return StageCut(
            whole=wholes, parts=parts, sizes=samples.sizes, gradients=gradients[0], gradient_parts=gradients[1:]
        )


def _stage(
    captured: Captured, run: Segment, axes: Mapping[str, SampleAxis], parameters: Mapping[str, nn.Parameter]
) -> Stage | None:
    """Return a run of operators to try; None where somewhere in what flows through it nobody knows the samples."""
    graph = captured.graph
    between = {name for name in (*run.inputs, *run.outputs) if name not in (*INPUTS, graph.loss)}
    if not between <= axes.keys():
        return None
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    rows = [each.name for each in graph.parameters if each.rows and not set(run.operators).isdisjoint(each.users)]
    return Stage(
        captured=captured,
        operators=run.operators,
        inputs=run.inputs,
        outputs=(*(name for name in _scored(graph, run) if name in axes), *run.outputs),
        differentiable=frozenset(name for name in between if tensors[name].requires_grad),
        axes=axes,
        rows={name: parameters[name] for name in rows},
    )


def _scored(graph: ModelGraph, run: Segment) -> tuple[str, ...]:
    """Return what a run gives to its own loss: where samples see each other before it, the loss is not blamed."""
    made = {tensor.name for tensor in graph.tensors if tensor.producer in run.operators}
    taken = (name for name in run.operators if graph.loss in graph.operator(name).outputs)
    return tuple(name for last in taken for name in graph.operator(last).inputs if name in made - set(run.outputs))


def _told_untried(graph: ModelGraph, left: list[Segment], axes: Mapping[str, SampleAxis], why_none: str) -> str:
    operators = list(dict.fromkeys(name for run in left for name in run.operators))
    named = f"operator {operators[0]}" + (f" and {len(operators) - 1} more" if len(operators) > 1 else "")
    names = [name for run in left for name in (*run.inputs, *run.outputs) if name not in (*INPUTS, graph.loss)]
    why = why_none or f"nobody knows where in {next(name for name in names if name not in axes)} the samples lie"
    return f"it is not tried again that samples do not see each other in {named}: {why}"


def _taken(axes: Mapping[str, SampleAxis], values: Values, places: list[int]) -> Values:
    """Copy some samples of what flows between operators; all of what is the same for them."""
    return {name: axes[name].take(value.detach(), places) for name, value in values.items() if name in axes}
