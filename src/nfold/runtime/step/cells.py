"""Performs a rank's tasks with torch: loads chunks, runs segments forward and backward, updates, feeds messages.

A rank that computes the whole model runs the user's own module; a cut model runs segments of its capture. Either way a
chunk's loss is weighted by its share of the batch, so that gradients add up to the whole batch's whatever the cut is.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.shapes import Shapes
from nfold.capture.batches.tree import map_tensors
from nfold.capture.computing.batch_norm import StatisticsRecorder
from nfold.capture.computing.random import LOCK, CellRandom
from nfold.capture.cutting.captured import BoundSegment, Captured
from nfold.capture.program.calling import call
from nfold.capture.proof.conditions import OUTPUTS, parts_needed
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.schedule import RankSchedule, Segment, StatisticsGroup
from nfold.core.tasks import (
    Backward,
    ChunkTensor,
    ComputeTask,
    Elements,
    FindClipFactor,
    FoldStatistics,
    Forward,
    Load,
    SumSquares,
)
from nfold.errors import NfoldError, NonFiniteLoss
from nfold.planning.reductions.ring_and_server_messages import summed_first
from nfold.planning.scheduling.segments import INPUTS
from nfold.program import Program
from nfold.runtime.data.chunk_loader import ChunkLoader, StepSamples
from nfold.runtime.guards.bad_loss import tell_chunk, tell_loss
from nfold.runtime.guards.checked_loss import CheckedLoss
from nfold.runtime.guards.later_trials import LaterTrials
from nfold.runtime.guards.stage_trials import StageFlow, StageTrials
from nfold.runtime.guards.uneven_samples import refuse_uneven
from nfold.runtime.parameters.buffers import Buffers
from nfold.runtime.parameters.optimizer_updates import UpdateKey, Updater
from nfold.runtime.step.activations import Activations
from nfold.runtime.step.chunk_statistics import ChunkStatistics
from nfold.runtime.step.clipping import Clipping
from nfold.runtime.step.engine import DataStore, Emit
from nfold.runtime.step.exact_sums import ExactSums, aligned
from nfold.runtime.step.gradient_signals import GradientSignals

TellLosses = Callable[[int, dict[int, float], int], None]
"""Called with a step, the weighted losses of all its chunks whose loss this rank computes, and their samples."""

_NO_CHUNK = -1
"""Draws of an optimizer belong to a step as a whole."""


@dataclass(slots=True)
class _SavedTensors:
    """What a forward keeps for its backward."""

    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]


@dataclass(slots=True)
class _Step:
    """State of the step under way."""

    index: int = 0
    sizes: tuple[int, ...] = ()
    batches: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    live: dict[tuple[int, int], _SavedTensors] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)


class Cells:
    """The performer of one rank's schedule."""

    def __init__(
        self,
        *,
        program: Program,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        captured: Captured | None,
        graph: ModelGraph,
        schedule: RankSchedule,
        reductions: tuple[Reduction, ...],
        groups: tuple[StatisticsGroup, ...],
        buffers: Buffers,
        updaters: dict[UpdateKey, Updater],
        clipping: Clipping | None,
        sampler: StepSamples,
        loader: ChunkLoader,
        recorder: StatisticsRecorder | None,
        device: torch.device,
        shapes: Shapes | None = None,
        trials: LaterTrials | None = None,
        stage_trials: StageTrials | None = None,
        tell_losses: TellLosses | None = None,
    ) -> None:
        self._program, self._model, self._captured, self._graph = program, model, captured, graph
        self._schedule, self._buffers, self._updaters, self._clipping = schedule, buffers, updaters, clipping
        self._sampler, self._loader, self._device = sampler, loader, device
        self._groups = {group.name: group for group in groups}
        self._shapes, self._trials, self._stage_trials = shapes, trials, stage_trials
        self._conditions = tuple(each for each in graph.conditions if OUTPUTS not in parts_needed(each.program))
        """Of the proof, on what is loaded; the loss looks at the others."""
        self._random = CellRandom(program.seed)
        self._is_random = any(operator.num_random for operator in graph.operators)
        self._is_split = graph.is_split
        self._segments: dict[int, BoundSegment] = {}
        self._tensors = {tensor.name: tensor for tensor in graph.tensors}
        held = {name for each in reductions if each.route != "local" for name in each.parameters}
        self._parameters = parameters
        self._unheld = [parameter for name, parameter in parameters.items() if name not in held]
        self._own_sums = tuple(
            piece for each in reductions if each.route == "local" for piece in summed_first(each, schedule.rank)
        )
        self._recorder = recorder
        self._statistics = ChunkStatistics(graph, groups, buffers, recorder) if recorder else None
        exactly = any(each.fraction_bits is not None for each in reductions)
        given = (reductions, schedule.rank, len(sampler.sizes(0)), parameters, buffers)
        self._exact = ExactSums(*given) if exactly else None  # its hooks come first: a signal sends what they add
        self._signals = GradientSignals(graph, schedule, reductions, parameters)
        self._activations = Activations(schedule, captured, device)
        self._tell_losses = tell_losses
        self._loss_chunks = tuple(
            task.chunk
            for task in schedule.tasks
            if isinstance(task, Forward) and graph.loss in schedule.segments[task.segment].outputs
        )
        self._step = _Step()

    def close(self) -> None:
        """Let go of the model: a later generation may train it."""
        self._signals.close()
        if self._exact is not None:
            self._exact.close()
        if self._recorder is not None:
            self._recorder.close()

    # Steps

    def begin(self, step: int, sizes: tuple[int, ...]) -> None:
        """Get ready for a step."""
        self._step = _Step(index=step, sizes=sizes)
        self._activations.begin(sizes)
        self._loader.begin(step)
        self._buffers.zero_gradients()
        if self._clipping is not None:
            self._clipping.begin()
        if self._exact is not None:
            self._exact.begin()
        for parameter in self._unheld:
            parameter.grad = None
        self._tell_if_all()

    def begin_again(self, step: int, sizes: tuple[int, ...]) -> None:
        """Get ready to do what a step has changed, whose sums are known: nothing of it is computed here."""
        self._step = _Step(index=step, sizes=sizes)
        self._buffers.zero_gradients()
        for parameter in self._unheld:
            parameter.grad = None

    @property
    def stores(self) -> dict[type, DataStore]:
        """Where the data of messages lie, by what names them."""
        return {Elements: self._buffers, ChunkTensor: self._activations}

    @property
    def losses(self) -> dict[int, float]:
        """Weighted loss of each chunk whose loss this rank computed in the step."""
        return self._step.losses

    def gradient(self, name: str, start: int, stop: int) -> torch.Tensor | None:
        """Return elements of what this rank alone updates a parameter by; None: it has no gradient, or a sparse one."""
        if self._exact is not None:
            return self._exact.gradient(name, start, stop)
        gradient = self._parameters[name].grad
        if gradient is None or gradient.layout is not torch.strided:
            return None
        return gradient.detach().reshape(-1)[start:stop]

    def perform(self, task: ComputeTask, emit: Emit) -> None:
        """Do a compute task; call `emit` with the events that it signals on the way."""
        if isinstance(task, Load):
            self._load(task.chunk)
        elif isinstance(task, Forward):
            self._forward(task)
        elif isinstance(task, Backward):
            self._backward(task, emit)
        elif isinstance(task, FoldStatistics):
            assert self._statistics is not None
            self._statistics.fold(self._groups[task.group], self._step.sizes)
        elif isinstance(task, (SumSquares, FindClipFactor)):
            assert self._clipping is not None
            if isinstance(task, SumSquares):
                self._clipping.count(task.gradients)
            else:
                self._clipping.find_factor()
        elif updater := self._updaters.get(task.gradients):
            if self._exact is not None:
                self._exact.give(task.gradients)
                updater.take_sums()
            self._tell_own_sums(task.gradients)
            self._update(updater)

    def _load(self, chunk: int) -> None:
        batch, size = self._loader.get(self._step.index, chunk), self._step.sizes[chunk]
        if len(self._step.sizes) > 1:
            refuse_uneven(self._conditions, batch, size)
        if self._shapes is not None:
            self._shapes.check(batch, size, chunk)
        batch = map_tensors(partial(torch.Tensor.to, device=self._device), batch)
        self._step.batches[chunk] = batch if self._exact is None else map_tensors(aligned, batch)

    # Forward

    def _forward(self, task: Forward) -> None:
        segment = self._schedule.segments[task.segment]
        if self._trials is not None and self._is_whole(segment) and not self._step.live:
            self._try_again(self._trials, task.chunk)
        self._random.enter(self._step.index, task.chunk)
        try:
            with torch.enable_grad(), self._checking(task.chunk):
                live = self._forward_whole(task) if self._runs_module(segment) else self._forward_segment(task, segment)
        except NfoldError:
            raise
        except Exception as error:
            with contextlib.suppress(Exception):  # what the program raised is told, also if its data cannot be read now
                error.add_note(tell_chunk(task.chunk, *self._loader.read_again(self._step.index, task.chunk)))
            raise
        if segment.backward:
            self._step.live[task.segment, task.chunk] = live
        else:
            self._try_stage_again(task, live, {})
        for name, value in live.outputs.items():
            if name != self._graph.loss:
                self._activations.keep(ChunkTensor(name, task.chunk), value)
        loss = live.outputs.get(self._graph.loss)
        if loss is not None:
            self._note_loss(task.chunk, loss)
        if self._statistics is not None:
            self._statistics.record(task.chunk, segment)

    def _try_again(self, trials: LaterTrials, chunk: int) -> None:
        step, size = self._step.index, self._step.sizes[chunk]
        read = partial(self._loader.read_apart, step, chunk)
        elsewhere = self._loader.num_elsewhere
        trials.look(self._model, self._step.batches[chunk], step, size, read, num_elsewhere=elsewhere)

    def _try_stage_again(self, task: Forward | Backward, live: _SavedTensors, gradients: dict[str, Any]) -> None:
        """Try a run of operators on what it was given and what came back to its outputs, the loss apart."""
        if self._stage_trials is None:
            return
        step, size = self._step.index, self._step.sizes[task.chunk]
        read = partial(self._loader.read_apart, step, task.chunk)
        flow = StageFlow(step=step, size=size, inputs=live.inputs, activation_gradients=gradients, read=read)
        self._stage_trials.look(self._model, task.segment, flow)

    def _checking(self, chunk: int) -> contextlib.AbstractContextManager[Any]:
        """Have the loss of a chunk checked, where that is to be done."""
        loss = self._program.loss
        return loss.checked(self._step.sizes[chunk]) if isinstance(loss, CheckedLoss) else contextlib.nullcontext()

    def _is_whole(self, segment: Segment) -> bool:
        return len(segment.operators) == len(self._graph.operators) and not self._is_split

    def _runs_module(self, segment: Segment) -> bool:
        """Whether the segment is the whole model and needs no seeds between its operators."""
        return self._is_whole(segment) and (not self._is_random or self._graph.capture == "opaque")

    def _forward_whole(self, task: Forward) -> _SavedTensors:
        inputs, targets = self._step.batches.pop(task.chunk)
        with self._drawing():
            if self._is_random:
                self._random.seed_everything(0)
            loss = self._program.loss(call(self._model, inputs), targets)
        return _SavedTensors({}, {self._graph.loss: loss})

    def _forward_segment(self, task: Forward, segment: Segment) -> _SavedTensors:
        module = self._segment_module(task.segment, segment)
        inputs = {name: self._input(ChunkTensor(name, task.chunk)) for name in segment.inputs}
        outputs = module(*inputs.values())
        return _SavedTensors(inputs, dict(zip(segment.outputs, outputs, strict=True)))

    def _segment_module(self, index: int, segment: Segment) -> BoundSegment:
        if index not in self._segments:
            assert self._captured is not None, "a cut model needs its capture"
            self._segments[index] = self._captured.segment(
                segment.operators, segment.inputs, segment.outputs, self._random
            )
        return self._segments[index]

    def _input(self, tensor: ChunkTensor) -> Any:
        """Return what a segment computes with; a batch is freed after the last use of both halves."""
        if tensor.name not in INPUTS:
            value = self._activations.use(tensor)
            return value.requires_grad_() if self._tensors[tensor.name].requires_grad else value
        batch = self._step.batches[tensor.chunk]
        if self._activations.is_last_use(tensor, [ChunkTensor(each, tensor.chunk) for each in INPUTS]):
            del self._step.batches[tensor.chunk]
        return batch[INPUTS.index(tensor.name)]

    def _note_loss(self, chunk: int, loss: torch.Tensor) -> None:
        value = float(loss.detach())
        if not math.isfinite(value):
            raise NonFiniteLoss(tell_loss(chunk, value, *self._loader.read_again(self._step.index, chunk)))
        self._step.losses[chunk] = value * self._weight(chunk)
        self._tell_if_all()

    def _tell_if_all(self) -> None:
        """Tell the losses once all are there: before the last gradients go, so that no step can count without them."""
        due = sum(self._step.sizes[chunk] > 0 for chunk in self._loss_chunks)
        if self._tell_losses is not None and len(self._step.losses) == due:
            samples = sum(self._step.sizes[chunk] for chunk in self._step.losses)
            self._tell_losses(self._step.index, dict(self._step.losses), samples)

    def _weight(self, chunk: int) -> float:
        return self._step.sizes[chunk] / sum(self._step.sizes)

    # Backward

    def _backward(self, task: Backward, emit: Emit) -> None:
        live = self._step.live.pop((task.segment, task.chunk))
        gradients = {
            name: self._output_gradient(name, task.chunk, output)
            for name, output in live.outputs.items()
            if output.requires_grad and (name == self._graph.loss or self._tensors[name].requires_grad)
        }
        self._try_stage_again(task, live, {name: gradients[name] for name in gradients if name != self._graph.loss})
        # Checkpointed parts draw again what they drew in forward.
        with self._drawing(), self._signals.during(task, emit):
            torch.autograd.backward([live.outputs[name] for name in gradients], list(gradients.values()))
        if self._statistics is not None:
            self._statistics.check_backward()
        for name, value in live.inputs.items():
            if name not in INPUTS and self._tensors[name].requires_grad:
                gradient = value.grad if value.grad is not None else torch.zeros_like(value)
                self._activations.add_gradient(ChunkTensor(name, task.chunk), task.segment, gradient)

    def _output_gradient(self, name: str, chunk: int, output: torch.Tensor) -> torch.Tensor | None:
        if name == self._graph.loss:
            weight = self._weight(chunk)
            return None if weight == 1.0 else torch.full_like(output, weight)
        return self._activations.summed_gradient(ChunkTensor(name, chunk))

    def _drawing(self) -> contextlib.AbstractContextManager[Any]:
        """Keep other threads (ranks, and what loads data) from the generators while this rank uses them."""
        return LOCK if self._is_random else contextlib.nullcontext()

    # Update

    def _tell_own_sums(self, gradients: Elements | None) -> None:
        """Tell of gradients that travel nowhere, as buffers do of those that are summed: before they are clipped.

        Args:
            gradients: that are updated; None: all of this rank.
        """
        if (tell := self._buffers.on_summed) is None:
            return
        for each in self._own_sums:
            if gradients in (None, each):
                tell(each)

    def _update(self, updater: Updater) -> None:
        """Step. An optimizer that draws does so for all weights at once, the same on every rank."""
        if self._clipping is not None:
            updater.scale(self._clipping.factor)
        if self._graph.update_scope == "model":
            with LOCK:
                self._random.enter(self._step.index, _NO_CHUNK)
                self._random.seed_everything(0)
                updater.step()
        else:
            updater.step()
        updater.advance(self._step.index + 1)
