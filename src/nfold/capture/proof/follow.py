"""Follows a program operator by operator, on tensors without memory and for any number of samples.

torch's own fake tensors compute shapes, with a symbol for the number of samples; below autograd every operator comes
by here and a rule says what its results know of the batch. Buffers of the copy that is followed may change.
"""

import builtins
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode

from nfold.capture.computing.replacing import replaced
from nfold.capture.program.users_line import users_line
from nfold.capture.program.weight_writes import storage_of
from nfold.capture.proof.guards import guarded, unforeseen
from nfold.capture.proof.rules import creation, gradients, indexing, layers, products, reducing, views
from nfold.capture.proof.rules.calls import Call, bind, tensors_in, written
from nfold.capture.proof.rules.counting import SampleCount, symbols_of
from nfold.capture.proof.rules.kinds import SHARED, Kind, Mixed, SampleRows, Unknown, plain, worst
from nfold.capture.proof.rules.layers import STATISTICS
from nfold.capture.proof.rules.pointwise import combined
from nfold.capture.proof.rules.rule_registry import RULES
from nfold.capture.proof.shape_shortcuts import shortcut
from nfold.capture.proof.tape import Path, Tape

_LONGEST_S = 60.0
"""After that what is left is not followed: a recurrent net over thousands of steps."""

_ = (gradients, indexing, layers, creation, products, reducing, views)


class TooLong(Exception):
    """A program has more operators than there is time to follow."""


class Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the kind of every tensor of a program while it runs."""

    def __init__(self, env: ShapeEnv, samples: SampleCount, weights: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.samples, self.tape = samples, Tape(weights)
        self.env = env
        self.fixed_at = ""
        """The user's line that made a plain number of the number of samples, if one did."""
        self._kinds: dict[int, tuple[torch.Tensor, Kind, int]] = {}
        """By identity, with the memory it lay in; a tensor stays alive, so that no other takes its place."""
        self._owners: dict[int, int] = {}
        self._in_storage: dict[int, list[torch.Tensor]] = {}
        self._numbers: dict[Any, Kind] = {}
        self._until = time.monotonic() + _LONGEST_S
        self.num_operators = 0

    def give(self, tensor: torch.Tensor, kind: Kind, path: Path | None = None) -> None:
        """Set the kind of a tensor, and where in the data it lies."""
        self._kinds[id(tensor)] = (tensor, kind, _storage(tensor))
        self._in_storage.setdefault(self._memory(tensor), []).append(tensor)
        if path is not None:
            self.tape.add_data(tensor, path)

    def kind(self, tensor: torch.Tensor) -> Kind:
        """Return what a tensor knows of the batch."""
        found = self._kinds.get(id(tensor))
        if found is not None and found[2] == _storage(tensor):
            return found[1]
        if found is not None or isinstance(tensor, FakeTensor):
            return Unknown(what="a tensor comes from where nothing was followed")
        # The model's own, or a constant: it may have been written to under another name.
        written = [self._kinds[id(each)][1] for each in self._in_storage.get(self._memory(tensor), ())]
        kind = worst(written) or (SHARED if all(each == SHARED for each in written) else _clash())
        self.give(tensor, kind)
        return kind

    def note_fixed(self, symbol: Any, *_: Any) -> None:
        """Note where a symbol is given a value, if it is that of the number of samples."""
        if symbol == self.samples.symbol:
            self.fixed_at = self.fixed_at or users_line()

    def _memory(self, tensor: torch.Tensor) -> int:
        """Return what tells the memory of a tensor from others; views of the model's own tensors lie in theirs."""
        storage = _storage(tensor)
        return self._owners.get(storage, storage)

    def _note_views(self, call: Call, function: torch._ops.OpOverload) -> None:
        """Remember that results are views of a tensor that is real: stand-ins lie in memory of their own."""
        source = next(call.tensors(), None)
        if source is None or isinstance(source, FakeTensor):
            return
        for output, returned in zip(call.outputs, function._schema.returns, strict=False):
            if returned.alias_info is not None:
                for each in tensors_in([output]):
                    if each is not source:
                        self._owners[_storage(each)] = self._memory(source)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute one operator and note the kinds of its results."""
        given = kwargs or {}
        if not isinstance(function, torch._ops.OpOverload) or function.namespace == "prim":
            return function(*args, **given)
        self.num_operators += 1
        if time.monotonic() > self._until:
            raise TooLong
        arguments = bind(function, args, given)
        result = shortcut(function, arguments)
        if result is None:
            result = function(*args, **given)
        call = Call(
            name=_name(function),
            arguments=arguments,
            result=result,
            samples=self.samples,
            known=self.kind,
            numbers=self._numbers.get,
            again=self._again,
            is_pointwise=torch.Tag.pointwise in function.tags,
            proportional=self.tape.proportional,
        )
        targets = [] if call.only_reads_statistics else written(function, arguments)
        self._note_views(call, function)
        self._note(call, self._kinds_of(call, function), targets)
        if not targets:
            self.tape.note(function, args, given, result)
        return result

    def _again(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        with self:
            return compute()

    def _kinds_of(self, call: Call, function: torch._ops.OpOverload) -> list[Kind]:
        outputs = call.outputs
        kinds: Kind | Sequence[Kind]
        if all(call.kind_of(each) == SHARED for each in call.values) and not _counted(call):
            return [SHARED] * len(outputs)
        if (bad := unforeseen(call)) is not None:
            kinds = bad
        elif function.namespace == "aten" and call.name in RULES:
            kinds = _checked(RULES[call.name], call)
        elif function.namespace == "aten" and torch.Tag.pointwise in function.tags:
            kinds = _checked(combined, call)
        else:
            kinds = worst([call.kind_of(each) for each in call.values]) or call.unknown()
        listed = list(kinds) if isinstance(kinds, Sequence) else [kinds] * len(outputs)
        return [_placed(guarded(call, kind, output)) for kind, output in zip(listed, outputs, strict=True)]

    def _note(self, call: Call, kinds: list[Kind], targets: list[torch.Tensor]) -> None:
        for output, kind in zip(call.outputs, kinds, strict=True):
            if isinstance(output, torch.Tensor) and not any(output is each for each in targets):
                self.give(output, kind)
            elif isinstance(output, (list, tuple)):
                for each in tensors_in(output):
                    self.give(each, kind)
            else:
                self._numbers |= {symbol: kind for symbol in symbols_of(output) - {self.samples.symbol}}
        kind = kinds[0] if kinds else Unknown(what=f"torch's {call.name} writes")
        for target in targets:
            self._write(target, _placed(STATISTICS) if call.is_statistical else kind)

    def _write(self, target: torch.Tensor, kind: Kind) -> None:
        """Note what was written to a tensor; whatever lies in the same memory knows as much of the batch now."""
        self.give(target, worst([self.kind(target)]) or kind)
        for other in self._in_storage[self._memory(target)]:
            self.tape.forget(other)
            if other is not target:
                is_same = other.shape == target.shape
                found = kind if is_same and self.kind(other) == kind else _mingled(self.kind(other), self.kind(target))
                self._kinds[id(other)] = (other, found, _storage(other))


def _placed(kind: Kind) -> Kind:
    """Add the user's line to what went wrong here."""
    if isinstance(kind, (Mixed, Unknown)) and not kind.where:
        return replace(kind, where=users_line())
    return kind


def _checked(rule: Callable[[Call], Any], call: Call) -> Kind | Sequence[Kind]:
    """Ask a rule; what it does not foresee is unknown."""
    try:
        return rule(call)  # type: ignore[no-any-return]
    except Exception:
        return call.unknown()


def _mingled(known: Kind, kind: Kind) -> Kind:
    """Return the kind of memory of which something else was written to a part."""
    if bad := worst([known, kind]):
        return bad
    if isinstance(known, SampleRows):
        return plain(known) if isinstance(kind, SampleRows) else _clash()
    return SHARED if known == kind == SHARED else _clash()


def _clash() -> Unknown:
    return Unknown(what="a value of each sample is written into a tensor that does not count them")


def _counted(call: Call) -> bool:
    """Tell whether a result counts samples though no argument does, as what is made in a batch's size."""
    return any(
        isinstance(size, torch.SymInt)
        for output in call.outputs
        if isinstance(output, torch.Tensor)
        for size in output.shape
    )


def _name(function: torch._ops.OpOverload) -> str:
    name = function._schema.name.partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _storage(tensor: torch.Tensor) -> int:
    return storage_of(tensor) or id(tensor)


@contextlib.contextmanager
def following(batch: Sequence[tuple[Path, torch.Tensor]], size: int, weights: Sequence[torch.Tensor]) -> Iterator[
    tuple[Follower, Callable[[torch.Tensor], torch.Tensor]]
]:  # fmt: skip
    """Follow what runs inside.

    Args:
        batch: every tensor of the data, and where it lies.
        size: the number of samples that is made a symbol.
        weights: the model's own tensors, which change while it trains.

    Yields:
        The follower, and a function from a tensor of the batch to its stand-in.
    """
    env = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env)
    fakes = [_fake(mode, tensor, size) for _, tensor in batch]
    counted = next(fake.shape[0] for fake in fakes if fake.ndim and isinstance(fake.shape[0], torch.SymInt))
    follower = Follower(env, SampleCount(counted), weights)
    for (path, _), fake in zip(batch, fakes, strict=True):
        has_rows = fake.ndim > 0 and isinstance(fake.shape[0], torch.SymInt)
        follower.give(
            fake, SampleRows(dim=0) if has_rows else Unknown(what="a part of the data does not count samples"), path
        )
    stand_ins = {id(tensor): fake for (_, tensor), fake in zip(batch, fakes, strict=True)}
    with enable_python_dispatcher(), mode, follower, _counting(), _telling(env, follower.note_fixed):
        yield follower, lambda tensor: stand_ins[id(tensor)]


@contextlib.contextmanager
def _telling(env: ShapeEnv, told: Callable[..., None]) -> Iterator[None]:
    """Tell whenever a symbol is given a value.

    Only meanwhile: sizes of tensors hold on to it, and who is told to tensors, a circle that no collector sees.
    """
    replace_symbol = env._set_replacement

    def told_too(*args: Any, **kwargs: Any) -> None:
        told(*args)
        replace_symbol(*args, **kwargs)

    with replaced(env, "_set_replacement", told_too):
        yield


def _fake(mode: FakeTensorMode, tensor: torch.Tensor, size: int) -> torch.Tensor:
    has_rows = tensor.ndim > 0 and tensor.shape[0] == size
    sizes = [DimDynamic.DUCK if dim == 0 and has_rows else DimDynamic.STATIC for dim in range(tensor.ndim)]
    context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(tensor, static_shapes=False, symbolic_context=context)


@contextlib.contextmanager
def _counting() -> Iterator[None]:
    """Let `len` of a tensor be a symbol: Python would make a number of it."""
    own = builtins.len

    @functools.wraps(own)
    def counted(value: Any, /) -> Any:
        return value.shape[0] if isinstance(value, FakeTensor) and value.ndim else own(value)

    with replaced(builtins, "len", counted):
        yield
