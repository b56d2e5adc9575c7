"""What one rank of an asynchronous run has of a snapshot: a shard's part, and what its worker alone changes."""

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from nfold.core.placement import Reduction
from nfold.errors import InternalError
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.runtime.asynchronous.store import Store
from nfold.runtime.checkpoint.checkpoint_format import Offer, OptimizerParts, StatePart, names_in_state
from nfold.runtime.checkpoint.extra_state import Extras, plain_extras
from nfold.runtime.checkpoint.joined_facts import DIVERGED, EXTRAS, FINGERPRINTS
from nfold.runtime.checkpoint.state_file import MODEL_PREFIX
from nfold.runtime.parameters.weights import Weights
from nfold.runtime.snapshots.state_memory import is_fixed


@dataclass(frozen=True, slots=True)
class ServedNames:
    """What shards give of a model, so that no worker's older copy counts."""

    by_tensor: dict[str, list[str]]
    """Names in the state dict by names of parameters and buffers."""
    all: frozenset[str]
    """In the state dict."""

    @classmethod
    def of(cls, weights: Weights, reductions: Iterable[Reduction], norms: Iterable[str]) -> "ServedNames":
        """Return the names of trained parameters, and of the running statistics of some modules."""
        model = weights.model
        by_tensor = names_in_state(model, model.state_dict(keep_vars=True))
        served = {weights.place(name).name for each in reductions for name in each.parameters}
        for path in norms:
            buffers = model.get_submodule(path).named_buffers(recurse=False)
            served |= {".".join(filter(None, (path, name))) for name, _ in buffers}
        return cls(by_tensor, frozenset(name for each in served for name in by_tensor.get(each, ())))


def shard_offer(store: Store | None, weights: Weights, names: ServedNames) -> Offer:
    """Return what a shard has of the model's state. Nothing is copied: it holds until the next gradient is applied.

    Args:
        store: of the shard; None: there is none on this rank.
        weights: of the rank.
        names: what shards give.
    """
    parts, state = [], OptimizerParts()
    if store is not None:
        for piece, values in store.pieces:
            place = weights.place(piece.name)
            whole = names.by_tensor.get(place.name, ())
            parts += [StatePart(MODEL_PREFIX + each, place.shape, place.start + piece.start, values) for each in whole]
        for name, buffer in store.norms.buffers() if store.norms is not None else ():
            whole = names.by_tensor.get(name, ())
            parts += [StatePart(MODEL_PREFIX + each, tuple(buffer.shape), 0, buffer) for each in whole]
        served = frozenset(piece.name for piece, _ in store.pieces)
        for updater in store.updaters.values():
            state.take(updater, served, weights)
    facts = {**state.facts, FINGERPRINTS: {}, EXTRAS: {}, DIVERGED: ""}
    return Offer([*parts, *state.parts], [], facts)


class WorkerPart:
    """What a worker alone has of its module: buffers that its forward passes change, and weights that nobody trains.

    It is copied between two slices: before the first one of a step that a snapshot must not have, or when the rank's
    shard is copied.
    """

    def __init__(
        self, model: nn.Module, steps: SnapshotSteps, served: Collection[str], written: Collection[str], rank: int
    ) -> None:
        """Args:
        model: the worker's.
        steps: after which snapshots are due.
        served: names in the state dict of what shards give.
        written: weights that nobody trains, and that the program itself changes.
        rank: the worker's; what modules say of themselves beside tensors is given by the first one.
        """
        self._model, self._steps, self._served, self._written = model, steps, served, written
        self._is_first = rank == 0
        self._lock = threading.Lock()
        self._is_computing = False
        self._copied = 0
        """Steps before which the worker has begun nothing that an earlier snapshot must not have."""
        self._copies: dict[int, tuple[list[StatePart], Extras]] = {}

    @contextmanager
    def computing(self, step: int) -> Iterator[None]:
        """Keep what snapshots need that must not have a slice of this step, while the slice is computed."""
        with self._lock:
            if due := self._steps.within(self._copied, step):
                self._copies |= dict.fromkeys(due, self._copy())
            self._copied = max(self._copied, step)
            self._is_computing = True
        try:
            yield
        finally:
            with self._lock:
                self._is_computing = False

    def add_to(self, offer: Offer, step: int) -> Offer:
        """Return what a shard offers together with this worker's part, as it was after so many steps.

        Raises:
            InternalError: a slice is being computed that the snapshot must have.
        """
        with self._lock:
            copy = self._copies.pop(step, None)
            self._copies = {at: each for at, each in self._copies.items() if at > step}
            if copy is None and self._is_computing:
                raise InternalError(f"a slice of the first {step} steps is still being computed, and they are done")
            rest, extras = copy or self._copy()
            self._copied = max(self._copied, step)
        return replace(offer, rest=rest, facts={**offer.facts, EXTRAS: extras})

    def _copy(self) -> tuple[list[StatePart], Extras]:
        state: dict[str, Any] = self._model.state_dict(keep_vars=True)
        tensors = ((name, value) for name, value in state.items() if isinstance(value, torch.Tensor))
        rest = [self._part(name, value) for name, value in tensors if name not in self._served]
        return rest, deepcopy(plain_extras(state)) if self._is_first else {}  # modules may go on changing these objects

    def _part(self, name: str, value: torch.Tensor) -> StatePart:
        part = StatePart(MODEL_PREFIX + name, tuple(value.shape), 0, value)
        return part if is_fixed(part, self._written) else replace(part, values=value.detach().clone())
