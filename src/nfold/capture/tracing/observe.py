"""Plays a traced program node by node and writes down what each node really did: everything a cut must know."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from nfold.capture.batches.example import SIZES, THIRD_SIZE, Example
from nfold.capture.batches.tree import strided_parts, tensors_of
from nfold.capture.computing.flops import FlopCounter
from nfold.capture.computing.random import RandomState, TorchState, seed_all
from nfold.capture.program.held_statement import Statement
from nfold.capture.program.program_graph import INPUT, Scope, Traced
from nfold.capture.tracing.value_sizes import ValueReading, ValueReads

BatchNorm = nn.modules.batchnorm._BatchNorm


@dataclass(slots=True)
class Observation:
    """What one node did with one batch."""

    value: Any
    storages: frozenset[int]
    """Storages that its value lies in."""
    mutated: frozenset[int]
    """Storages that it wrote to."""
    random: bool
    foreign_random: bool
    """Whether it drew from Python's or numpy's generator."""
    statistics: tuple[str, ...]
    """Batch-norm modules that it called."""
    flops: float
    may_alias: bool = False
    """Whether its value may lie in what it was given, though it need not have done so."""
    reading: ValueReading = field(default_factory=lambda: ValueReading(is_plain=True))
    """What it did with values; known of the first play alone."""
    has_gradient: bool = False


@dataclass(slots=True)
class Play:
    """The observations of one batch, played through the program."""

    size: int
    nodes: dict[fx.Node, Observation] = field(default_factory=dict)
    reached: set[fx.Node] = field(default_factory=set)
    """Nodes to whose value a gradient came back."""


@dataclass(frozen=True, slots=True)
class _Watches:
    """What is noted of one play alone."""

    counter: FlopCounter
    reads: ValueReads


def observe(traced: Traced, fresh: Callable[[], nn.Module], example: Example) -> list[Play]:
    """Play four batches: three sizes, and the first size again with other samples; one backward at the end.

    Args:
        traced: the program.
        fresh: makes throw-away copies of the model.
        example: where batches come from.
    """
    before, scope = RandomState(), Scope(fresh(), traced.constants)  # whose model lives until hooks on it have run
    plays, has_moved = _plays(traced, scope, example, TorchState)
    if has_moved:
        before.restore()
        scope = Scope(fresh(), traced.constants)
        plays, _ = _plays(traced, scope, example, RandomState)
    _backward(traced, plays[-1])
    return plays


def _plays(traced: Traced, scope: Scope, example: Example, state: type[TorchState]) -> tuple[list[Play], bool]:
    """Return the plays, and whether Python's or numpy's generator was drawn from."""
    large, small = SIZES
    with FlopCounter() as counter, ValueReads() as reads:
        played = [_play(traced, scope, example, (large, 1), state, _Watches(counter, reads))]
    played += [_play(traced, scope, example, key, state) for key in ((small, 1), (THIRD_SIZE, 1), (large, 0))]
    return [play for play, _ in played], any(moved for _, moved in played)


def compute(node: fx.Node, scope: Scope, args: Any, kwargs: Any) -> Any:
    """Compute one node with these arguments and return its value."""
    if node.op == "get_attr":
        return scope.tensor(str(node.target))
    if node.op == "call_module":
        return scope.module(str(node.target))(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


@contextlib.contextmanager
def watch_statistics(model: nn.Module) -> Iterator[list[str]]:
    """Collect the names of batch-norm modules that update running statistics, in order of call."""
    calls: list[str] = []

    def note(name: str) -> Any:
        return lambda module, _args: calls.append(name) if module.training else None

    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, BatchNorm) and module.track_running_stats:
                hooks.enter_context(module.register_forward_pre_hook(note(name)))
        yield calls


def _play(
    traced: Traced,
    scope: Scope,
    example: Example,
    key: tuple[int, int],
    state: type[TorchState],
    watches: _Watches | None = None,
) -> tuple[Play, bool]:
    """Play a batch; say whether Python's or numpy's generator was drawn from."""
    play = Play(size=example.size_of(key[0]))
    values = dict(zip(("input", "target"), example.batch(*key), strict=True))
    seed_all(key[1])
    seeded, random = RandomState(), state()
    with watch_statistics(scope.model) as calls:
        for node in traced.nodes:
            if node.op == "placeholder":
                value = values[INPUT if node.target == INPUT else "target"]
                play.nodes[node] = Observation(value, _storages(value), frozenset(), False, False, (), 0.0)
            else:
                seen = play.nodes[node] = _observe_node(node, scope, play, calls, watches, random)
                if seen.random or seen.foreign_random:
                    random = state()  # only then: it takes longer than most nodes do
    return play, seeded.others_moved()


def _observe_node(
    node: fx.Node, scope: Scope, play: Play, calls: list[str], watches: _Watches | None, before: TorchState
) -> Observation:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda used: play.nodes[used].value)
    given = [tensor for tensor in tensors_of([list(args), kwargs]) if not tensor.is_inference()]
    versions = [tensor._version for tensor in given]
    flops = watches.counter.total if watches else 0
    calls.clear()
    if watches:
        watches.reads.begin()
    with node.meta["region"].enter():
        value = compute(node, scope, args, kwargs)
    reading = watches.reads.take(node, scope) if watches else ValueReading(is_plain=True)
    statement = _statement(node, scope)
    written = list(given) if statement and statement.held.writes else []
    written += [tensor for tensor, old in zip(given, versions, strict=True) if tensor._version != old]
    observation = Observation(
        value=value,
        storages=_storages(value),
        mutated=_storages(written),
        random=before.torch_moved() or (statement is not None and statement.held.draws),
        foreign_random=before.others_moved(),
        statistics=tuple(calls),
        flops=float(watches.counter.total - flops) if watches else 0.0,
        reading=reading,
        may_alias=statement is not None,
    )
    if isinstance(value, torch.Tensor) and value.requires_grad and node.op != "get_attr":
        # A hook that knew the value would keep it, and the model behind it, for good: no collector sees that circle.
        reached = play.reached
        value.register_hook(lambda _gradient: reached.add(node))  # type: ignore[no-untyped-call]
    return observation


def _statement(node: fx.Node, scope: Scope) -> Statement | None:
    """Return the user's statements that a node stands for: in other branches they may do what was not seen."""
    module = scope.module(str(node.target)) if node.op == "call_module" else None
    return module if isinstance(module, Statement) else None


def _backward(traced: Traced, play: Play) -> None:
    """Note which values a gradient reaches."""
    torch.autograd.backward(play.nodes[traced.result].value)
    written = frozenset[int]().union(*(seen.mutated for seen in play.nodes.values()))
    for node, seen in play.nodes.items():
        seen.has_gradient = node in play.reached
        # A write to its storage gave the value another history than the one that was watched.
        if seen.storages & written and any(tensor.requires_grad for tensor in tensors_of(seen.value)):
            seen.has_gradient = True


def _storages(value: Any) -> frozenset[int]:
    """Identify storages; valid while the values are alive."""
    dense = (part for tensor in tensors_of(value) for part in strided_parts(tensor))
    return frozenset(part.untyped_storage()._cdata for part in dense)
