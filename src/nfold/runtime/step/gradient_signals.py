"""Tells when the gradients of a bucket are complete, while the backward that makes them is still running."""

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from nfold.core.graph import ModelGraph, Parameter
from nfold.core.placement import Reduction
from nfold.core.schedule import RankSchedule
from nfold.core.tasks import Backward
from nfold.errors import ProgramError
from nfold.runtime.step.engine import Emit


class GradientSignals:
    """Emits a bucket's event when autograd has accumulated the last of its gradients, in the middle of a backward."""

    def __init__(
        self,
        graph: ModelGraph,
        schedule: RankSchedule,
        reductions: tuple[Reduction, ...],
        parameters: Mapping[str, nn.Parameter],
    ) -> None:
        self._is_static = graph.static_gradients
        users = {parameter.name: _learning(parameter, graph) for parameter in graph.trained}
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
        # Only a local bucket can leave a parameter without gradient, as one device does.
        local = {reduction.name for reduction in reductions if reduction.route == "local"}
        watched = {name for name, bucket in bucket_of.items() if bucket not in local}
        self._names = [
            {name for name, using in users.items() if name in watched and using & set(segment.operators)}
            for segment in schedule.segments
        ]
        self._hooks: list[Any] = []
        for name, bucket in bucket_of.items():
            if name in watched:
                watch: Any = parameters[name].register_post_accumulate_grad_hook
                self._hooks.append(watch(functools.partial(self._count, bucket, name)))

    def close(self) -> None:
        """Watch no more: a later generation may train the same parameters."""
        for hook in self._hooks:
            hook.remove()

    def during(self, task: Backward, emit: Emit) -> "GradientSignals":
        """Return a context in which one backward runs.

        Args:
            task: the backward.
            emit: called with the event of each bucket that is complete, on autograd's thread.

        Raises:
            ProgramError: at its end, if a parameter of a bucket that travels got no gradient.
        """
        self._events = {signal.reduction: signal.event for signal in task.signals}
        self._left = dict(self._expected[task.segment]) if self._events else {}
        self._emit, self._seen = emit, set()
        self._wanted = self._names[task.segment]
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
                "when a batch is spread over workers. Use -n 1 --strategy single."
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


def _learning(parameter: Parameter, graph: ModelGraph) -> set[str]:
    """Return the operators that use a parameter and can give it a gradient: not those that only look at its value."""
    reached = {tensor.producer for tensor in graph.tensors if tensor.requires_grad or tensor.name == graph.loss}
    return reached & set(parameter.users)
