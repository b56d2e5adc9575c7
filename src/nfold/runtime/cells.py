"""Performs a rank's tasks with torch: loads chunks, runs segments forward and backward, updates, feeds messages.

A rank that computes the whole model runs the user's own module; a cut model runs segments of its capture. Either way a
chunk's loss is weighted by its share of the batch, so that gradients add up to the whole batch's whatever the cut is.
"""

import contextlib
import functools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nfold.capture.captured import BoundSegment, Captured
from nfold.capture.random import LOCK, CellRandom
from nfold.capture.statistics import StatisticsRecorder
from nfold.capture.tree import map_tensors
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.schedule import RankSchedule, Segment, StatisticsGroup, Task
from nfold.errors import NonFiniteLoss, ProgramError
from nfold.planning.segments import INPUTS
from nfold.program import Program
from nfold.runtime.buffers import Buffers, as_bytes
from nfold.runtime.data import ChunkLoader, Sampler
from nfold.runtime.engine import Emit
from nfold.runtime.updates import UpdateKey, Updater


@dataclass(slots=True)
class _Live:
    """What a forward keeps for its backward."""

    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]


@dataclass(slots=True)
class _Step:
    """State of the step under way."""

    index: int = 0
    sizes: tuple[int, ...] = ()
    batches: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    values: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    """Detached tensors by name and chunk."""
    live: dict[tuple[int, int], _Live] = field(default_factory=dict)
    gradients: dict[tuple[str, int], dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))
    """By tensor and chunk: contributions by where they came from; local segments first, then ranks."""
    losses: dict[int, float] = field(default_factory=dict)
    arrived: dict[int, torch.Tensor] = field(default_factory=dict)
    """Host memory of RECV tasks by id."""
    sent: dict[int, torch.Tensor] = field(default_factory=dict)
    """Keeps what SEND tasks read alive."""


class Cells:
    """The performer of one rank's schedule."""

    def __init__(
        self,
        *,
        program: Program,
        model: nn.Module,
        captured: Captured | None,
        graph: ModelGraph,
        schedule: RankSchedule,
        reductions: tuple[Reduction, ...],
        groups: tuple[StatisticsGroup, ...],
        buffers: Buffers,
        updaters: dict[UpdateKey, Updater],
        sampler: Sampler,
        loader: ChunkLoader,
        recorder: StatisticsRecorder | None,
        device: torch.device,
    ) -> None:
        self._program, self._model, self._captured, self._graph = program, model, captured, graph
        self._schedule, self._buffers, self._updaters = schedule, buffers, updaters
        self._sampler, self._loader, self._recorder, self._device = sampler, loader, recorder, device
        self._groups = {group.name: group for group in groups}
        self._random = CellRandom(program.seed)
        self._is_random = any(operator.num_random for operator in graph.operators)
        self._segments: dict[int, BoundSegment] = {}
        self._tensors = {tensor.name: tensor for tensor in graph.tensors}
        parameters = dict(model.named_parameters())
        held = {name for each in reductions if each.route != "local" for name in each.parameters}
        self._unheld = [parameter for name, parameter in parameters.items() if name not in held]
        self._signals = _GradientSignals(graph, schedule, reductions, parameters)
        self._step = _Step()

    # Steps

    def begin(self, step: int, sizes: tuple[int, ...]) -> None:
        """Get ready for a step."""
        self._step = _Step(index=step, sizes=sizes)
        self._loader.begin(step)
        self._buffers.zero_gradients()
        for parameter in self._unheld:
            parameter.grad = None

    @property
    def losses(self) -> dict[int, float]:
        """Weighted loss of each chunk whose loss this rank computed in the step."""
        return self._step.losses

    def perform(self, task: Task, emit: Emit) -> None:
        """Do a compute task."""
        if task.kind == "LOAD":
            batch = self._loader.get(self._step.index, task.chunk)
            self._step.batches[task.chunk] = map_tensors(lambda tensor: tensor.to(self._device), batch)
        elif task.kind == "F":
            self._forward(task)
        elif task.kind == "B":
            self._backward(task, emit)
        elif task.reduction in self._groups:
            self._fold(self._groups[task.reduction])
        elif updater := self._updaters.get((task.reduction, task.start)):
            updater.step()
            updater.keep_values()

    # Forward

    def _forward(self, task: Task) -> None:
        segment = self._schedule.segments[task.segment]
        self._random.enter(self._step.index, task.chunk)
        with torch.enable_grad():
            live = self._forward_whole(task) if self._runs_module(segment) else self._forward_segment(task, segment)
        self._step.live[task.segment, task.chunk] = live
        for name, value in live.outputs.items():
            self._step.values[name, task.chunk] = value.detach()
        loss = live.outputs.get(self._graph.loss)
        if loss is not None:
            self._note_loss(task.chunk, loss)
        self._record_statistics(task, segment)

    def _runs_module(self, segment: Segment) -> bool:
        """Whether the segment is the whole model and needs no seeds between its operators."""
        whole = len(segment.operators) == len(self._graph.operators)
        return whole and (not self._is_random or self._graph.capture == "opaque")

    def _forward_whole(self, task: Task) -> _Live:
        inputs, targets = self._step.batches[task.chunk]
        with LOCK if self._is_random else contextlib.nullcontext():
            if self._is_random:
                self._random.seed_everything(0)
            loss = self._program.loss(self._model(inputs), targets)
        return _Live({}, {self._graph.loss: loss})

    def _forward_segment(self, task: Task, segment: Segment) -> _Live:
        module = self._segment_module(task.segment, segment)
        inputs = {name: self._input(name, task.chunk) for name in segment.inputs}
        outputs = module(*inputs.values())
        return _Live(inputs, dict(zip(segment.outputs, outputs, strict=True)))

    def _segment_module(self, index: int, segment: Segment) -> BoundSegment:
        if index not in self._segments:
            assert self._captured is not None, "a cut model needs its capture"
            self._segments[index] = self._captured.segment(
                segment.operators, segment.inputs, segment.outputs, self._random
            )
        return self._segments[index]

    def _input(self, name: str, chunk: int) -> Any:
        if name in INPUTS:
            return self._step.batches[chunk][INPUTS.index(name)]
        value = self._step.values[name, chunk].detach()
        return value.requires_grad_() if self._tensors[name].requires_grad else value

    def _note_loss(self, chunk: int, loss: torch.Tensor) -> None:
        value = float(loss.detach())
        if not math.isfinite(value):
            raise NonFiniteLoss(
                f"the loss of chunk {chunk} is {value}. A smaller learning rate or gradient clipping often helps."
            )
        self._step.losses[chunk] = value * self._weight(chunk)

    def _weight(self, chunk: int) -> float:
        return self._step.sizes[chunk] / sum(self._step.sizes)

    # Backward

    def _backward(self, task: Task, emit: Emit) -> None:
        live = self._step.live.pop((task.segment, task.chunk))
        roots, gradients = [], []
        for name, output in live.outputs.items():
            if output.requires_grad and (name == self._graph.loss or self._tensors[name].requires_grad):
                roots.append(output)
                gradients.append(self._output_gradient(name, task.chunk, output))
        with self._signals.during(task, emit):
            torch.autograd.backward(roots, gradients)
        for name, value in live.inputs.items():
            if name not in INPUTS and self._tensors[name].requires_grad:
                gradient = value.grad if value.grad is not None else torch.zeros_like(value)
                self._step.gradients[name, task.chunk][-1 - task.segment] = gradient

    def _output_gradient(self, name: str, chunk: int, output: torch.Tensor) -> torch.Tensor | None:
        if name == self._graph.loss:
            weight = self._weight(chunk)
            return None if weight == 1.0 else torch.full_like(output, weight)
        return self._summed_gradient(name, chunk)

    def _summed_gradient(self, name: str, chunk: int) -> torch.Tensor:
        """Add the contributions in one order, whatever order they came in: own segments, last first, then ranks."""
        contributions = self._step.gradients[name, chunk]
        keys = sorted(contributions)
        total = contributions[keys[0]]
        for key in keys[1:]:
            total = total + contributions[key]
        return total

    # Batch statistics

    def _record_statistics(self, task: Task, segment: Segment) -> None:
        if self._recorder is None:
            return
        calls = self._recorder.take()
        inside = set(segment.operators)
        self._check_calls(calls, inside)
        for group in self._groups.values():
            if inside & set(group.operators):
                self._write_row(task.chunk, group, inside, calls)

    def _check_calls(self, calls: dict[str, list[tuple[Any, Any]]], inside: set[str]) -> None:
        """Refuse batch norms that are called again behind the capture's back, as recomputation in backward does."""
        expected: dict[str, int] = defaultdict(int)
        for operator in self._graph.operators:
            for module in operator.statistics if operator.name in inside else ():
                expected[module] += 1
        for module, made in calls.items():
            if len(made) != expected[module]:
                raise ProgramError(
                    f"the batch norm {module} was called {len(made)} times for one chunk, not {expected[module]}. "
                    "Recomputing it in backward (activation checkpointing) makes its running statistics depend on "
                    "the workers. Leave it out of the checkpointed part, or use -n 1."
                )

    def _write_row(
        self, chunk: int, group: StatisticsGroup, inside: set[str], calls: dict[str, list[tuple[Any, Any]]]
    ) -> None:
        """Lay the means and variances of this segment's calls where the group's row keeps them."""
        offset = chunk * group.num_elements
        taken: dict[str, int] = defaultdict(int)
        for operator in group.operators:
            for module in self._graph.operator(operator).statistics:
                width = 2 * self._channels(module)
                if operator in inside:
                    mean, variance = calls[module][taken[module]]
                    taken[module] += 1
                    self._buffers.flat(group.name, offset, offset + width).copy_(torch.cat([mean, variance]))
                offset += width

    def _channels(self, module: str) -> int:
        return next(statistic.num_channels for statistic in self._graph.statistics if statistic.module == module)

    def _fold(self, group: StatisticsGroup) -> None:
        """Update the running statistics chunk after chunk, as one device would."""
        assert self._recorder is not None
        modules = [module for operator in group.operators for module in self._graph.operator(operator).statistics]
        for chunk, size in enumerate(self._step.sizes):
            if not size:
                continue
            offset = chunk * group.num_elements
            for module in modules:
                width = self._channels(module)
                mean = self._buffers.flat(group.name, offset, offset + width)
                variance = self._buffers.flat(group.name, offset + width, offset + 2 * width)
                self._recorder.fold(module, mean, variance)
                offset += 2 * width

    # Messages

    def outgoing(self, task: Task) -> memoryview:
        """Return the bytes of a SEND."""
        if task.purpose not in ("activation", "gradient"):
            return self._buffers.outgoing(task)
        name = task.buffer.partition("/")[2]
        if task.purpose == "activation":
            value = self._step.values[name, task.chunk]
        else:
            value = self._summed_gradient(name, task.chunk)
        host = value.detach().contiguous().cpu()
        self._step.sent[task.id] = host
        return as_bytes(host)

    def incoming(self, task: Task) -> memoryview:
        """Return where the bytes of a RECV may be written."""
        if task.purpose not in ("activation", "gradient"):
            return self._buffers.incoming(task)
        assert self._captured is not None, "a cut model needs its capture"
        name = task.buffer.partition("/")[2]
        shape, dtype = self._captured.shape(name, self._step.sizes[task.chunk])
        host = torch.empty(shape, dtype=dtype)
        self._step.arrived[task.id] = host
        return as_bytes(host)

    def combine(self, task: Task) -> None:
        """Take in what a RECV brought."""
        if task.purpose not in ("activation", "gradient"):
            self._buffers.combine(task)
            return
        name = task.buffer.partition("/")[2]
        value = self._step.arrived.pop(task.id).to(self._device)
        if task.purpose == "activation":
            self._step.values[name, task.chunk] = value
        else:
            self._step.gradients[name, task.chunk][task.peer] = value


class _GradientSignals:
    """Emits a bucket's event when the last of its gradients is there, while the backward is still running."""

    def __init__(
        self,
        graph: ModelGraph,
        schedule: RankSchedule,
        reductions: tuple[Reduction, ...],
        parameters: dict[str, nn.Parameter],
    ) -> None:
        self._is_static = graph.static_gradients
        users = {parameter.name: set(parameter.users) for parameter in graph.trained}
        bucket_of = {name: reduction.name for reduction in reductions for name in reduction.parameters}
        self._expected: list[dict[str, int]] = []
        for segment in schedule.segments:
            counts: dict[str, int] = defaultdict(int)
            for name, using in users.items():
                if using & set(segment.operators):
                    counts[bucket_of[name]] += 1
            self._expected.append(dict(counts))
        self._seen: set[str] = set()
        self._wanted: set[str] = set()
        self._left: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self._emit: Emit | None = None
        signalled = {signal.reduction for task in schedule.tasks for signal in task.signals}
        watched = {name for name, bucket in bucket_of.items() if bucket in signalled}
        self._names = [
            {name for name, using in users.items() if name in watched and using & set(segment.operators)}
            for segment in schedule.segments
        ]
        for name, bucket in bucket_of.items():
            if bucket in signalled:
                watch: Any = parameters[name].register_post_accumulate_grad_hook
                watch(functools.partial(self._count, bucket, name))

    def during(self, task: Task, emit: Emit) -> "_GradientSignals":
        """Watch one backward."""
        self._events = {signal.reduction: signal.event for signal in task.signals}
        self._left = dict(self._expected[task.segment]) if self._events else {}
        self._emit, self._seen = emit, set()
        self._wanted = self._names[task.segment] if self._events else set()
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Emit what is left: a parameter that got no gradient this time holds nobody up."""
        if kind is None and self._emit is not None:
            self._check_gradients()
            for event in self._events.values():
                self._emit(event)
        self._emit, self._events = None, {}

    def _check_gradients(self) -> None:
        """Refuse what would update parameters with gradients of zero where one device would leave them alone."""
        missing = sorted(self._wanted - self._seen)
        if missing:
            raise ProgramError(
                f"{len(missing)} parameters got no gradient for one chunk, {missing[0]!r} among them, though they "
                "had one when the program was tried. Which parameters are used must not change from batch to batch "
                "when a batch is spread over workers. Use -n 1."
            )

    def _count(self, bucket: str, name: str, parameter: torch.Tensor) -> None:
        """Note a gradient. Where the graph is not known one may come twice (recomputation), so nothing goes early."""
        del parameter
        self._seen.add(name)
        if self._emit is None or bucket not in self._left or not self._is_static:
            return
        self._left[bucket] -= 1
        if self._left[bucket] == 0 and bucket in self._events:
            self._emit(self._events.pop(bucket))
