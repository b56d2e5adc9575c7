"""Compares what a run of operators computes of a chunk with what it computes of parts of it.

Where each run of operators of a cut model acts within samples, so does the model: no rank needs all of its weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.tree import map_tensors
from nfold.capture.computing.precision import PrecisionWatch
from nfold.capture.computing.random import CellRandom
from nfold.capture.computing.steady_draws import SteadyDraws
from nfold.capture.computing.step_outcome import StepOutcome, close, outcome
from nfold.capture.cutting.captured import BoundSegment, Captured
from nfold.capture.independence.batch_cut import doubled
from nfold.capture.independence.comparisons import Comparison, both, first
from nfold.capture.independence.divisible import ROUNDINGS, coarsest, explained, quiet
from nfold.capture.independence.sample_axes import SampleAxis
from nfold.capture.independence.sample_mean import not_a_mean
from nfold.capture.program.held_statement import Held
from nfold.capture.program.program_graph import LOSS
from nfold.capture.side_effects.module_states import is_freed

Values = dict[str, Any]
"""By the names of tensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCut:
    """The inputs of a run of operators for a chunk, and for the same samples in parts."""

    whole: Values
    parts: list[Values]
    sizes: tuple[int, ...]
    """Samples of each part."""
    gradients: Values
    """What comes back to the outputs, the loss apart, of all samples."""
    gradient_parts: list[Values]

    def shares(self) -> list[float]:
        """Return each part's share of the samples."""
        return [size / sum(self.sizes) for size in self.sizes]

    def in_double(self) -> "StageCut":
        """Return the same in double precision."""
        changed = {name: map_tensors(doubled, getattr(self, name)) for name in _VALUES}
        return replace(self, **changed)


_VALUES = ("whole", "parts", "gradients", "gradient_parts")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A run of operators of a captured program that can be computed with a part of a chunk."""

    captured: Captured
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    differentiable: frozenset[str]
    """Tensors to which a gradient flows back."""
    axes: Mapping[str, SampleAxis]
    """Of all of them but the batch and the loss."""
    rows: Mapping[str, nn.Parameter]
    """Of operators cut into parts: the rows of parameters that they compute with, by name."""

    def told(self) -> str:
        """Return words for the run of operators that fit into a sentence."""
        first_one, last = self.operators[0], self.operators[-1]
        return f"operator {last} computes" if first_one == last else f"operators {first_one} .. {last} compute"

    def bound(self, model: nn.Module, rows: Mapping[str, nn.Parameter]) -> BoundSegment:
        """Return what computes them with copies of the model and of the rows, in whatever type these are."""
        layout = self.captured.layout
        constants = {path: _of_any_type(value, model) for path, value in layout.traced.constants.items()}
        layout = replace(layout, traced=replace(layout.traced, constants=constants))
        copied = Captured(self.captured.graph, layout, model, rows)
        return copied.segment(self.operators, self.inputs, self.outputs, CellRandom(0))


def why_stage_unlike(stage: Stage, fresh: Callable[[], nn.Module], all_of_it: StageCut, some: StageCut) -> str:
    """Compare samples apart and together, as `why_unlike_now` does of a whole model.

    Args:
        stage: what is computed.
        fresh: makes copies of the model; weights of other operators may be let go.
        all_of_it: whose outputs and loss are compared.
        some: of them, whose gradients are compared too.

    Returns:
        How they differ, in the user's words; empty if only by rounding.

    Raises:
        Exception: neither can be compared.
    """
    finest = fresh()
    quiet(finest)
    _double(finest)
    trial, fine = _Trial(stage, finest), some.in_double()
    if trial.computes(fine):
        return first(trial.comparisons(all_of_it.in_double(), fine))
    del finest, trial
    model = fresh()
    quiet(model)
    return both(_Trial(stage, model).comparisons(all_of_it, some))


class _Trial:
    """A run of operators over one copy of the model."""

    def __init__(self, stage: Stage, model: nn.Module) -> None:
        self._stage, self._model = stage, model
        self._rows = {name: _copied(rows, model) for name, rows in stage.rows.items()}
        self._run = stage.bound(model, self._rows)

    def computes(self, cut: StageCut) -> bool:
        try:
            self._backward([self._forward(cut.whole)], [cut.gradients], [1.0])
        except Exception:
            return False
        return True

    def comparisons(self, all_of_it: StageCut, some: StageCut) -> list[Comparison]:
        def outputs() -> str:
            with torch.no_grad():
                return self._difference(all_of_it, with_gradients=False)

        trains = bool(some.gradients) or LOSS in self._stage.outputs
        return [outputs, lambda: self._difference(some, with_gradients=trains)]

    def _difference(self, cut: StageCut, *, with_gradients: bool) -> str:
        with PrecisionWatch() as watch:
            whole = self._forward(cut.whole)
        parts = [self._forward(part) for part in cut.parts]
        precision = max(watch.coarsest, coarsest(cut.whole))
        for name in self._stage.outputs:
            if text := self._unlike(name, whole, parts, cut, precision):
                return text
        if not with_gradients:
            return ""
        # Parts first: while they are added up, a weight's gradient is there twice.
        found = self._backward(parts, cut.gradient_parts, cut.shares())
        return explained(self._backward([whole], [cut.gradients], [1.0]), found, ROUNDINGS * precision)

    def _unlike(self, name: str, whole: "_Computed", parts: list["_Computed"], cut: StageCut, precision: float) -> str:
        one, others = whole.outputs[name].detach(), [part.outputs[name].detach() for part in parts]
        if name == LOSS:
            mean = torch.stack([other * share for other, share in zip(others, cut.shares(), strict=True)]).sum()
            return "" if close(one, mean, precision) else not_a_mean(one, mean, sum(cut.sizes))
        if self._stage.axes[name].fits(one, others, precision):
            return ""
        return f"what {self._stage.told()} of a sample depends on the other samples of its batch, not only on its own"

    def _forward(self, values: Values) -> "_Computed":
        stage = self._stage
        inputs = {name: map_tensors(torch.clone, values[name]) for name in stage.inputs}
        for name in stage.differentiable.intersection(inputs):
            inputs[name].requires_grad_()
        with SteadyDraws():
            outputs = self._run(*inputs.values())
        return _Computed(inputs, dict(zip(stage.outputs, outputs, strict=True)))

    def _backward(self, computed: list["_Computed"], gradients: list[Values], shares: list[float]) -> StepOutcome:
        """Add up the gradients of weights over parts, and join those of inputs."""
        for one, given, share in zip(computed, gradients, shares, strict=True):
            roots = {name: each for name, each in one.outputs.items() if each.requires_grad}
            roots = {name: each for name, each in roots.items() if name == LOSS or name in given}
            values = [self._root(name, each, given, share) for name, each in roots.items()]
            if roots:
                torch.autograd.backward(list(roots.values()), values)
        found = outcome(torch.zeros(()), self._model)
        inner = self._stage.differentiable.intersection(self._stage.inputs)
        all_of_them = found.gradients | {name: self._came_back(name, computed) for name in inner}
        all_of_them |= {name: rows.grad for name, rows in self._rows.items()}
        for rows in self._rows.values():
            rows.grad = None
        return replace(found, gradients=all_of_them)

    def _root(self, name: str, output: torch.Tensor, given: Values, share: float) -> torch.Tensor:
        """Return what comes back to an output of a part; of one that is the same for all samples, the part's share."""
        if name == LOSS:
            return torch.full_like(output, share)
        gradient: torch.Tensor = given[name].to(output)
        return gradient if self._stage.axes[name].dimension is not None else gradient * share

    def _came_back(self, name: str, computed: list["_Computed"]) -> torch.Tensor | None:
        gradients = [one.inputs[name].grad for one in computed]
        there = [each for each in gradients if each is not None]
        if len(there) < len(gradients):
            return None
        axis = self._stage.axes[name]
        return torch.stack(there).sum(0) if axis.dimension is None else torch.cat([axis.rows(each) for each in there])


@dataclass(frozen=True, slots=True)
class _Computed:
    inputs: Values
    outputs: Values


def _of_any_type(value: Any, model: nn.Module) -> Any:
    """Return a constant of a trace as a copy of the model computes with it."""
    if isinstance(value, Held):
        return replace(value, kinds=())  # they tell types, and those are others here
    return map_tensors(doubled, value) if _is_double(model) else value


def _copied(rows: nn.Parameter, model: nn.Module) -> nn.Parameter:
    value = rows.detach().clone()
    return nn.Parameter(doubled(value) if _is_double(model) else value, requires_grad=rows.requires_grad)


def _is_double(model: nn.Module) -> bool:
    return any(parameter.dtype == torch.float64 for parameter in model.parameters())


def _double(model: nn.Module) -> None:
    """Put a module in double precision, but for weights that are let go: they have the memory of one element."""
    model._apply(lambda each: each if is_freed(each) else doubled(each))  # type: ignore[no-untyped-call]
