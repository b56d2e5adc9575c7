"""Whether a model that is cut between any two operators computes the same bits as the whole one (`--exact`).

A kernel may round otherwise where a tensor lies otherwise in memory: a view that is sent arrives as a copy. So each
operator is played by itself once, on what it would receive, and all gradients are compared with those of the module.
"""

from collections import defaultdict
from functools import partial
from typing import Any

import torch
from torch import nn

from nfold.capture.capture import recapture
from nfold.capture.computing.random import CellRandom
from nfold.capture.cutting.captured import BoundSegment, Captured
from nfold.capture.example_batches import program_batches
from nfold.capture.program.building import build_model
from nfold.capture.program.calling import call
from nfold.core.graph import ModelGraph
from nfold.planning.scheduling.segments import INPUTS
from nfold.program import Program
from nfold.runtime.rank.agreed_gradients import FEW, as_in_a_step

CPU = torch.device("cpu")


def why_cut_inexact(program: Program, graph: ModelGraph, dataset: Any) -> str:
    """Return why a cut may change bits, in a few words; empty: it does not.

    Two passes over a few samples and about six to trace them.
    """
    if graph.capture == "opaque" or len(graph.operators) == 1:
        return ""  # never cut
    with as_in_a_step():
        return _difference(program, graph, dataset)


def _difference(program: Program, graph: ModelGraph, dataset: Any) -> str:
    model, example = build_model(program, CPU), program_batches(program, dataset)
    captured = recapture(model, program.loss, example, graph, rebuild=partial(build_model, program, CPU))
    batch = example.batch(graph.only_samples or min(FEW, program.batch_size))
    whole = _whole(program, model, captured, batch)
    apart = _Apart(captured, program.seed).gradients(batch)
    for parameter in graph.trained:
        # With several users they are never cut apart.
        if len(parameter.users) == 1 and not torch.equal(whole[parameter.name], apart[parameter.name]):
            return f"operators by themselves give {parameter.name} a gradient of other bits than the whole model does"
    return ""


def _whole(program: Program, model: nn.Module, captured: Captured, batch: tuple[Any, Any]) -> dict[str, torch.Tensor]:
    graph = captured.graph
    if any(operator.num_random for operator in graph.operators):
        names = [operator.name for operator in graph.operators]
        random = _random(program.seed)
        inputs, outputs = captured.boundary(names)
        values = [batch[INPUTS.index(name)] for name in inputs]
        loss = captured.segment(names, inputs, outputs, random)(*values)[outputs.index(graph.loss)]
    else:
        loss = program.loss(call(model, batch[0]), batch[1])
    loss.backward()
    return _take(captured)


def _take(captured: Captured) -> dict[str, torch.Tensor]:
    """Return all gradients, and forget them."""
    found = {}
    for name, parameter in captured.model.named_parameters():
        if parameter.grad is not None:
            found[name], parameter.grad = parameter.grad, None
    return found


def _random(seed: int) -> CellRandom:
    random = CellRandom(seed)
    random.enter(0, 0)
    return random


class _Apart:
    """Plays each operator by itself, forward and then backward, as ranks would that have one each."""

    def __init__(self, captured: Captured, seed: int) -> None:
        self._captured, self._graph, self._random = captured, captured.graph, _random(seed)
        self._tensors = {tensor.name: tensor for tensor in captured.graph.tensors}
        self._values: dict[str, torch.Tensor] = {}
        self._gradients: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
        """In the order in which a step adds them: the last operator's first."""

    def gradients(self, batch: tuple[Any, Any]) -> dict[str, torch.Tensor]:
        """Return the gradients of the weights, by name."""
        made = [self._forward(operator.name, batch) for operator in self._graph.operators]
        for inputs, outputs in reversed(made):
            self._backward(inputs, outputs)
        return _take(self._captured)

    def _forward(self, name: str, batch: tuple[Any, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        inputs, outputs = self._captured.boundary([name])
        segment: BoundSegment = self._captured.segment([name], inputs, outputs, self._random)
        given = {each: self._given(each, batch) for each in inputs}
        found = dict(zip(outputs, segment(*given.values()), strict=True))
        self._values |= {each: value.detach() for each, value in found.items() if each != self._graph.loss}
        return given, found

    def _given(self, name: str, batch: tuple[Any, Any]) -> Any:
        if name in INPUTS:
            return batch[INPUTS.index(name)]
        value = self._sent(name, self._values[name])
        return value.requires_grad_() if self._tensors[name].requires_grad else value

    def _sent(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor as it arrives elsewhere."""
        spec = self._captured.spec(name)
        return spec.unpack(spec.pack(value).clone())

    def _backward(self, inputs: dict[str, Any], outputs: dict[str, torch.Tensor]) -> None:
        flowing = {name: self._back(name) for name, output in outputs.items() if self._flows(name, output)}
        if not flowing:
            return
        torch.autograd.backward([outputs[name] for name in flowing], list(flowing.values()))
        for name, value in inputs.items():
            if name not in INPUTS and self._tensors[name].requires_grad:
                gradient = value.grad if value.grad is not None else torch.zeros_like(value)
                self._gradients[name].append(self._sent(name, gradient))

    def _flows(self, name: str, output: torch.Tensor) -> bool:
        return output.requires_grad and (name == self._graph.loss or self._tensors[name].requires_grad)

    def _back(self, name: str) -> torch.Tensor | None:
        if name == self._graph.loss:
            return None
        first, *others = self._gradients.pop(name)
        for other in others:
            first = first + other
        return first
