"""Programs that do something else long after any trial, by what Python objects keep where no module shows it."""

import functools
import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from probes import Base
from torch import nn

LATE = 500


def weight(calls: float) -> float:
    return 1.0 if calls < LATE else 2.0


class Warm:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return weight(self.calls)


class Slotted:
    __slots__ = ("__calls",)

    def __init__(self) -> None:
        self.__calls = 0

    def advance(self) -> float:
        self.__calls += 1
        return weight(self.__calls)


def weights() -> Iterator[float]:
    for calls in itertools.count():
        yield weight(calls)


class Counts(dict[str, float]):
    calls = 0


def late(make: Callable[[], Any], ask: Callable[[Any], float]) -> type[nn.Module]:
    """Return a probe that asks something of its own for a weight."""

    class Late(Base):
        def __init__(self) -> None:
            super().__init__()
            self.helper = make()

        def between(self, x: torch.Tensor) -> torch.Tensor:
            return x * ask(self.helper)

    return Late


def ask_namespace(helper: SimpleNamespace) -> float:
    helper.calls += 1
    return weight(helper.calls)


def ask_window(helper: Any) -> float:
    helper.calls += 1
    return weight(helper.calls)


class HookState(Base):
    """Kept by a hook."""

    def __init__(self) -> None:
        super().__init__()
        warm = Warm()
        self.block = nn.Sequential(nn.Linear(12, 12))
        self.block.register_forward_hook(functools.partial(self._weigh, warm))

    @staticmethod
    def _weigh(warm: Warm, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * warm()

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x)


_HELPERS: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "LateCallable": (Warm, lambda helper: helper()),
    "LatePartial": (lambda: functools.partial(Warm.__call__, Warm()), lambda helper: helper()),
    "LateMethod": (lambda: Warm().__call__, lambda helper: helper()),
    "LateSlots": (Slotted, Slotted.advance),
    "LateNamespace": (lambda: SimpleNamespace(calls=0), ask_namespace),
    "LateDict": (Counts, ask_window),
    "LateCount": (itertools.count, lambda helper: weight(next(helper))),
    "LateCycle": (lambda: itertools.cycle([1.0] * LATE + [2.0]), next),
    "LateList": (lambda: iter([1.0] * LATE + [2.0]), next),
    "LateMap": (lambda: map(weight, iter(range(10 * LATE))), next),
    "LateRandom": (lambda: random.Random(1), lambda helper: 2.0 if helper.random() < 1e-4 else 1.0),
}
HELD = {late(*each): "helper" for each in _HELPERS.values()} | {
    late(weights, next): "helper",
    HookState: "block.hook 0",
}
"""Probes whose copies keep a state of their own, and what must be named."""
for _probe, _name in zip(HELD, (*_HELPERS, "LateGenerator"), strict=False):
    _probe.__name__ = _name

CALLS = 0
LIST = [0.0]
CACHE: dict[int, float] = {}
COUNTER = itertools.count()


def count() -> int:
    global CALLS
    CALLS += 1
    return CALLS


def counted_default(calls: list[int] = [0]) -> int:  # noqa: B006
    calls[0] += 1
    return calls[0]


class SharedGlobal(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * weight(count())


class SharedList(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        LIST.append(LIST[-1] + 1)
        return x * weight(LIST[-1])


class SharedIterator(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * weight(next(COUNTER))


class SharedDefault(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * weight(counted_default())


class SharedClass(Base):
    calls = 0

    def between(self, x: torch.Tensor) -> torch.Tensor:
        SharedClass.calls += 1
        return x * weight(self.calls)


class SharedFunction(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        weight.calls = getattr(weight, "calls", 0) + 1
        return x * weight(weight.calls)


class SharedClosure(Base):
    def __init__(self) -> None:
        super().__init__()
        turns = 0

        def turn() -> float:
            nonlocal turns
            turns += 1
            return weight(turns)

        self.turn = turn

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.turn()


class Drifting(nn.Module):
    """Adds something of what it was given before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average.mul_(0.9).add_(x.detach().mean(), alpha=0.1)
        return x + self.average


DRIFTING = Drifting()


class SharedModule(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return DRIFTING(x)


SHARED = {
    SharedModule: "DRIFTING",
    SharedGlobal: "CALLS",
    SharedList: "LIST",
    SharedIterator: "COUNTER",
    SharedDefault: "counted_default",
    SharedClass: "SharedClass.calls",
    SharedFunction: "weight",
    SharedClosure: "turns",
}
"""Probes whose copies all count together, and what must be named."""


class Harmless(Base):
    """Names what never changes, or changes without a trace in what is computed."""

    scale, names = 2.0, ("a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.pick, self.waiting = weight, iter([1.0, 2.0])

    def between(self, x: torch.Tensor) -> torch.Tensor:
        CACHE[len(CACHE)] = self.scale
        with warnings.catch_warnings():
            return torch.tanh(x) * self.pick(len(self.names)) * CACHE[0]


class KeepsActivations(Base):
    """A hook writes down for later what a layer puts out, in the module that it was made for."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, torch.Tensor] = {}
        self.first.register_forward_hook(lambda _module, _inputs, output: self.kept.update(first=output.detach()))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)
