"""What is in a checkpoint: the whole model's state from what each rank holds, as one file that needs no nfold to read.

State belongs to parameters, not to ranks: every rank offers what only it has, rank 0 asks for one piece after another
(`runtime/checkpoint/state_collection.py`), and any number of ranks under any plan can take it back, each no more than
it needs. A checkpoint is a safetensors file, whose header and offsets are made in `runtime/checkpoint/state_file.py`:

    model.NAME             the plain module's state dict
    average.NAME           the same of the averaged weights, where there are some
    optimizer.NAME.KEY     whatever the optimizer keeps for that parameter
    state_dict.PATH        or what its own state_dict() has there, where it is not by parameter
    metadata "nfold"       step, chunks, the optimizer's class and plain values or the form of its state dict
                           (`capture/optimizers/state_tree.py`), modules' extra states, as JSON
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nfold.capture.optimizers.state_tree import from_tree
from nfold.core.placement import Reduction
from nfold.errors import CheckpointError, ProgramError
from nfold.runtime.checkpoint.agreement import first_diverged
from nfold.runtime.checkpoint.extra_state import Extras, plain_extras
from nfold.runtime.checkpoint.joined_facts import DIVERGED, EXTRAS, FINGERPRINTS, UNKEPT, WHOLE, Fingerprints
from nfold.runtime.checkpoint.state_file import AVERAGE_PREFIX, MODEL_PREFIX, StateEntry, StateHeader
from nfold.runtime.parameters.optimizer_state import OptimizerState, Plain, check_plain
from nfold.runtime.parameters.optimizer_updates import UpdateKey, Updater
from nfold.runtime.parameters.weights import Weights

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
READ_BYTES = 8 << 20
"""Of a tensor that are asked for at once: each piece costs a rank a question to the coordinator."""
_OPTIMIZER_PREFIX = "optimizer."
_WHOLE_PREFIX = "state_dict."


@dataclass(frozen=True, slots=True)
class StatePart:
    """Elements of one tensor of the file, counted flat."""

    name: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    values: torch.Tensor

    @property
    def described(self) -> tuple[str, str, tuple[int, ...], int, int]:
        """Return name, type, shape, first element and the end.

        Raises:
            ProgramError: such a file cannot hold its type.
        """
        dtype = self.values.dtype
        if dtype not in _NAMES:
            raise ProgramError(f"{self.name} is {dtype}, which a file of weights (safetensors) cannot hold.")
        return self.name, _NAMES[dtype], self.shape, self.start, self.start + self.values.numel()


@dataclass(frozen=True, slots=True)
class Offer:
    """What one rank has of the whole state. Nothing is copied: it holds until the rank goes on training."""

    parts: list[StatePart]
    """What it must give."""
    rest: list[StatePart]
    """Its module's state dict: rank 0's counts where nobody gives anything."""
    facts: dict[str, Any]
    """Fingerprints of what others hold as well, and what the optimizer keeps beside tensors."""


class StateReader:
    """Reads the bytes of parts."""

    def __init__(self, parts: Sequence[StatePart]) -> None:
        self._parts = parts
        self._index, self._flat = -1, torch.empty(0)

    def read(self, index: int, start: int, stop: int) -> memoryview:
        """Return the bytes of elements [start, stop) of a part, counted from its begin. They change with the tensor."""
        if index != self._index:
            self._index, self._flat = index, self._parts[index].values.detach().reshape(-1)
        found: memoryview = self._flat[start:stop].cpu().contiguous().view(torch.uint8).numpy().data
        return found


def offer(
    rank: int,
    reductions: Iterable[Reduction],
    updaters: Mapping[UpdateKey, Updater] | None,
    weights: Weights,
    buffer_modules: Iterable[str],
    untrained: Iterable[str] = (),
    fingerprints: Fingerprints | None = None,
    extras: Mapping[str, Any] | None = None,
    *,
    is_all: bool = False,
) -> Offer:
    """Return what this rank alone must give to the whole model's state, or all that it has of it.

    Args:
        rank: this one.
        reductions: all.
        updaters: its own; None: only the module's state dict is wanted, under its own names.
        weights: its own.
        buffer_modules: whose buffers it gives.
        untrained: parameters of no reduction that it gives, since rank 0 has let them go.
        fingerprints: of what other ranks hold as well.
        extras: extra states of modules that it has changed. Others are those of rank 0.
        is_all: whether it gives what other ranks have as well; what diverged is not looked for then.

    Raises:
        ProgramError: a checkpoint cannot hold something.
    """
    reductions = tuple(reductions)
    prefix = "" if updaters is None else MODEL_PREFIX
    whole_state = weights.model.state_dict(keep_vars=True)  # who gives averages knows tensors by themselves
    state_dict = {name: value for name, value in whole_state.items() if isinstance(value, torch.Tensor)}
    changed = dict(extras or {})
    plain = (plain_extras(whole_state) if rank == 0 else {}) | plain_extras(changed)
    names = names_in_state(weights.model, state_dict)
    given = [each for each in reductions if rank in (each.members if is_all else each.members[:1])]
    owned = [name for reduction in given for name in reduction.parameters]
    stated = {name for each in reductions if each.route == "server" for name in each.parameters} | set(owned)
    parts = []
    for name in (*owned, *untrained):
        place = weights.place(name)
        values = weights.parameters[name]
        parts += [StatePart(prefix + whole, place.shape, place.start, values) for whole in names.get(place.name, ())]
    for name, buffer in _buffers(weights.model, buffer_modules):
        parts += [StatePart(prefix + whole, tuple(buffer.shape), 0, buffer) for whole in names.get(name, ())]
    for name, value in changed.items():
        if isinstance(value, torch.Tensor):
            parts.append(StatePart(prefix + name, tuple(value.shape), 0, value))
    state = OptimizerParts()
    for updater in (updaters or {}).values():
        state.take(updater, frozenset(stated), weights)
    rest = [StatePart(prefix + name, tuple(value.shape), 0, value) for name, value in state_dict.items()]
    diverged = "" if is_all else first_diverged(rank, reductions, weights.parameters)
    facts = {**state.facts, FINGERPRINTS: fingerprints or {}, EXTRAS: plain, DIVERGED: diverged}
    return Offer([*parts, *state.parts], rest, facts)


def names_in_state(model: nn.Module, state_dict: Collection[str]) -> dict[str, list[str]]:
    """Return every name in the state dict of a tensor, by each of its names."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    same: dict[int, list[str]] = {}
    for name, tensor in named:
        if name in state_dict:
            same.setdefault(id(tensor), []).append(name)
    return {name: same.get(id(tensor), []) for name, tensor in named}


def _buffers(model: nn.Module, modules: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for path in modules:
        for name, buffer in model.get_submodule(path).named_buffers(recurse=False):
            yield ".".join(part for part in (path, name) if part), buffer


class OptimizerParts:
    """What optimizers keep, by the names of the module's parameters."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, int], StatePart] = {}
        self._scalars: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, dict[str, Plain]] = {}
        self._kind = ""
        self._whole: Any = None
        self._unkept = ""

    def take(self, updater: Updater, names: frozenset[str], weights: Weights) -> None:
        """Take one optimizer's."""
        self._kind = self._kind or updater.kind
        try:
            self._take_state(updater, names, weights)
        except ProgramError as error:
            self._unkept = self._unkept or str(error)
        self._unkept = self._unkept or updater.why_unkept()

    def _take_state(self, updater: Updater, names: frozenset[str], weights: Weights) -> None:
        if updater.is_kept_whole:
            self._take_whole(updater, names)
            return
        for piece, state, elementwise, group in updater.state():
            if piece.name not in names:
                continue
            place = weights.place(piece.name)
            self._groups[place.name] = group
            for key, value in state.items():
                name = f"{_OPTIMIZER_PREFIX}{place.name}.{key}"
                if not isinstance(value, torch.Tensor):
                    check_plain(place.name, key, value, self._kind)
                    self._scalars.setdefault(place.name, {})[key] = value
                elif key in elementwise:
                    self._add(StatePart(name, place.shape, place.start + piece.start, _dense(value)))
                else:
                    self._add(StatePart(name, tuple(value.shape), 0, _dense(value)))

    def _take_whole(self, updater: Updater, names: frozenset[str]) -> None:
        """Take what every rank has, if this is the one that gives it."""
        if not names:
            return
        tree = updater.whole_state()
        self._whole = tree.plain
        for path, tensor in tree.tensors.items():
            self._add(StatePart(_WHOLE_PREFIX + path, tuple(tensor.shape), 0, tensor))

    def _add(self, part: StatePart) -> None:
        """Of a step count, which each piece of a parameter has, one is enough."""
        self._tensors[part.name, part.start] = part

    @property
    def parts(self) -> list[StatePart]:
        """Return the tensors."""
        return list(self._tensors.values())

    @property
    def facts(self) -> dict[str, Any]:
        """Return what is kept beside tensors."""
        found = {"optimizer": self._kind, "scalars": self._scalars, "groups": self._groups, WHOLE: self._whole}
        return {**found, UNKEPT: self._unkept}


def _dense(value: torch.Tensor) -> torch.Tensor:
    return value.to_dense() if value.is_sparse else value


class Checkpoint:
    """A training state: the parameters after `step` steps, and what it takes to go on. Tensors are read when asked for.

    Attributes:
        step: steps done.
        extras: what modules said of themselves beside tensors; nothing where an older version wrote it.
        kind: the optimizer's class; empty where an older version did not write it down.
    """

    def __init__(self, header: bytes, read: Callable[[int, int], bytes | bytearray | memoryview]) -> None:
        """Look at a checkpoint.

        Args:
            header: the begin of its file.
            read: returns bytes of its file, from one position to another.

        Raises:
            CheckpointError: it is none.
        """
        self._header, self._read = StateHeader(header), read
        facts = self._header.facts
        try:
            self.step = int(facts["step"])
            self._scalars, self.kind = facts["scalars"], facts.get("optimizer", "")
            self._whole = facts.get(WHOLE)
            self.extras: Extras = dict(facts.get(EXTRAS, {}))
            self._groups = {name: _with_tuples(group) for name, group in facts["groups"].items()}
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"this is not a checkpoint of nfold, or it is damaged: {error}") from error
        self._optimizer_keys: dict[str, list[str]] = {}
        for name in self._header.entries:
            if name.startswith(_OPTIMIZER_PREFIX):
                parameter, _, key = name.removeprefix(_OPTIMIZER_PREFIX).rpartition(".")
                self._optimizer_keys.setdefault(parameter, []).append(key)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the tensors of the module's state dict."""
        names = (name for name in self._header.entries if name.startswith(MODEL_PREFIX))
        return frozenset(name.removeprefix(MODEL_PREFIX) for name in names)

    def model(self, names: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """Return tensors of the module's state dict by name; without `names`, all of them."""
        return {name: self._tensor(MODEL_PREFIX + name) for name in (self.names if names is None else names)}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor of the state dict; None if there is none of that name."""
        entry = self._header.entries.get(MODEL_PREFIX + name)
        return entry.shape if entry else None

    def copy_into(self, target: torch.Tensor, name: str) -> None:
        """Give a tensor the values of one of the state dict, a piece at a time where their memory has its order."""
        entry = self._header.entries[MODEL_PREFIX + name]
        if not target.is_contiguous():
            target.copy_(self._tensor(entry.name))
            return
        flat, most = target.view(-1), max(1, READ_BYTES // entry.item_bytes)
        for start in range(0, entry.num_elements, most):
            stop = min(entry.num_elements, start + most)
            flat[start:stop].copy_(self._elements(entry, start, stop))

    def piece(self, parameter: str, shape: tuple[int, ...], start: int, stop: int) -> OptimizerState:
        """Return what the optimizer keeps for some elements of a parameter: nothing else is read.

        Args:
            parameter: its name.
            shape: of the whole parameter.
            start: first element, counted flat.
            stop: the end.

        Returns:
            Tensors of the parameter's shape are flat and of those elements; others, such as a step count, are as they
            were kept.
        """
        keys = self._optimizer_keys.get(parameter, ())
        entries = {key: self._header.entries[f"{_OPTIMIZER_PREFIX}{parameter}.{key}"] for key in keys}
        elementwise = frozenset(key for key, entry in entries.items() if entry.shape == shape)
        tensors = {
            key: self._elements(entry, start, stop) if key in elementwise else self._tensor(entry.name)
            for key, entry in entries.items()
        }
        return OptimizerState({parameter: tensors}, elementwise, self._scalars, self._groups, self.kind)

    def average(self, name: str, start: int, stop: int) -> torch.Tensor | None:
        """Return elements [start, stop) of a tensor's average, flat; None if there is none."""
        entry = self._header.entries.get(AVERAGE_PREFIX + name)
        return None if entry is None else self._elements(entry, start, stop)

    @property
    def has_state_dict(self) -> bool:
        """Whether it holds the optimizer's own state_dict() instead of state by parameter."""
        return self._whole is not None

    def state_dict(self) -> Any:
        """Return the optimizer's own state_dict()."""
        return from_tree(self._whole, lambda path: self._tensor(_WHOLE_PREFIX + path))

    def _tensor(self, name: str) -> torch.Tensor:
        entry = self._header.entries[name]
        return self._elements(entry, 0, entry.num_elements).reshape(entry.shape)

    def _elements(self, entry: StateEntry, first: int, last: int) -> torch.Tensor:
        """Read elements, a piece at a time: no more than one is in memory beside them."""
        flat = torch.empty(last - first, dtype=DTYPES[entry.dtype])
        into, begin = flat.view(torch.uint8).numpy().data, self._header.range_of(entry.name)[0]
        begin, end = begin + first * entry.item_bytes, begin + last * entry.item_bytes
        for start in range(begin, end, READ_BYTES):
            stop = min(end, start + READ_BYTES)
            into[start - begin : stop - begin] = self._read(start, stop)
        return flat


def _with_tuples(group: dict[str, Any]) -> dict[str, Plain]:
    """Return hyper-parameters as the optimizer had them, since JSON has no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in group.items()}
