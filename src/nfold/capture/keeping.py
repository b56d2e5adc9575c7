"""Finds out, before training, how an optimizer's state is kept so that a run goes on bit for bit.

    pieces    optimizer.state[parameter] and what is plain in its group: each rank has its own part
    whole     what the user's state_dict() gives, for load_state_dict() to take: the optimizer is updated whole

Each way is tried: some steps, state out, a new optimizer, state in and two more must be as many steps at once, and the
new optimizer must hold all that the old one does, wherever it holds it. On small weights that takes milliseconds.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn

from nfold.capture.compare import close
from nfold.capture.held import alike, differences, held_by
from nfold.capture.lost_state import LONG, tell_shared, told_broken, told_lost
from nfold.capture.optimizers import Scope, Values, examples, sliced, small
from nfold.capture.random import seed_all
from nfold.capture.shared import Watch, places_of_optimizer
from nfold.capture.state_tree import CannotHold, from_tree, to_tree, why_unheld
from nfold.capture.stepping import Stepper, Stepping
from nfold.errors import ProgramError
from nfold.program import describe

Form = Literal["pieces", "whole"]

_SPLITS = (2, 12)
"""Steps after which the state is taken out. Between them gradients stay the same, since what an optimizer estimates of
the way to its goal grows only then; before and behind them they turn."""
_OF_SCHEDULES = (2, 5, 12)
"""Torch's schedules of several parts change at some step."""
_MORE = 2
_REPLAYED = 64
"""Steps of a schedule that are played twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """How far an update can be cut, and how its state is kept."""

    scope: Scope
    form: Form = "pieces"
    unkept: str = ""
    """Why no checkpoint can be gone on from, and what to do; empty if one can."""
    note: str = ""
    """What is not kept, as far as it has changed nothing."""
    forgets: tuple[str, ...] = ()
    """The names of that."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a way of keeping came to."""

    broken: str = ""
    """What went wrong; empty where the steps are the same."""
    lost: tuple[str, ...] = ()
    """What the new optimizer has otherwise than the old one."""


def keeping(
    stepping: Stepping, model: nn.Module, scope: Scope, sparse: Mapping[str, int] = MappingProxyType({})
) -> Keeping:
    """Try the ways of keeping the state of the user's optimizer, cut as it may be by `scope`.

    Takes memory for a few small weights; where an optimizer works on nothing but the model's own, twice that of an
    update.

    Raises:
        ProgramError: the optimizer does not step on gradients alone, or the schedule is not the same when it is built
            and played again.
    """
    found = _tried_on(stepping, model, sparse)
    check_schedule(stepping, found.values)
    _refuse_shared(found)
    pieces, whole = (_outcome(found, form) for form in ("pieces", "whole"))
    if pieces == _Outcome():
        try:
            fits = scope != "element" or _survives_cuts(found)
        except Exception:
            fits = False
        return Keeping(scope=scope if fits else "parameter")
    if whole == _Outcome():
        return Keeping(scope="model", form="whole")
    if not pieces.broken:
        return Keeping(scope=scope, note=told_lost(found.kind, pieces.lost), forgets=pieces.lost)
    if not whole.broken:
        return Keeping(scope="model", form="whole", note=told_lost(found.kind, whole.lost), forgets=whole.lost)
    return Keeping(scope=scope, unkept=told_broken(found.kind, whole.broken, whole.lost))


def check_schedule(stepping: Stepping, values: Values) -> None:
    """Build and play the schedule twice.

    Raises:
        ProgramError: it came to different things.
    """
    if stepping.scheduler is None:
        return
    one, other = (stepping.build(_parameters(values)) for _ in range(2))
    for step in range(1, _REPLAYED + 1):
        try:
            one.replay(step)
            other.replay(step)
        except ProgramError:
            return  # it is shorter, which is told elsewhere
        if not alike(*(repr(_settings(each.optimizer)) for each in (one, other))):
            raise ProgramError(
                "the schedule that Program(scheduler=...) builds is not the same when it is built again and stepped as "
                f"often: after step {step} its settings differ. Each rank builds one, and so does a run that goes on. "
                "It must follow from the step alone: no random numbers, no clock, and no counter that is kept outside."
            )


def _settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{key: each for key, each in group.items() if key != "params"} for group in optimizer.param_groups]


@dataclass(frozen=True, slots=True)
class _Subject:
    """An optimizer, and weights on which it works."""

    stepping: Stepping
    values: Values
    sparse: frozenset[str]
    """Weights whose gradients are sparse."""
    kind: str = ""


class _Run:
    """An optimizer that is stepped."""

    def __init__(self, subject: _Subject, values: Values, step: int = 0) -> None:
        self._subject = subject
        self._first = [value for _, value in values]
        weights = _parameters(values)
        self.parameters = [weight for _, weight in weights]
        self.stepper: Stepper = subject.stepping.build(weights)
        self.stepper.replay(step)
        self._sparse = [name in subject.sparse for name, _ in values]

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.stepper.optimizer

    def play(self, begin: int, end: int, like: "_Run | None" = None) -> None:
        """Take steps, with the gradients that another run has."""
        first = self._first if like is None else like._first
        for step in range(begin, end):
            turn = step if step >= _SPLITS[1] else min(step, _SPLITS[0])
            for parameter, value, is_sparse in zip(self.parameters, first, self._sparse, strict=True):
                gradient = torch.sin(value * 7.0 + turn)
                parameter.grad = gradient.to_sparse(1) if is_sparse and gradient.ndim else gradient
            seed_all(step)
            self.optimizer.step()
            self.stepper.advance(step + 1)

    @property
    def values(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self.parameters]

    def held(self) -> dict[tuple[str, ...], Any]:
        """Return what optimizer and schedule keep."""
        schedule = self.stepper.scheduler
        found = held_by(self.optimizer, self.parameters, but=[schedule])
        if schedule is not None:
            kept = held_by(schedule, self.parameters, but=[self.optimizer])
            found |= {(".schedule", *path): each for path, each in kept.items() if path[:1] != ("._last_lr",)}
        return found


def _parameters(values: Values) -> list[tuple[str, nn.Parameter]]:
    return [(name, nn.Parameter(value.detach().clone())) for name, value in values]


def _refuse_shared(subject: _Subject) -> None:
    """Refuse steps that change what all optimizers of a process share.

    Played twice, with other weights: what the first step puts into a dict may be a cache, whose content stays.

    Raises:
        ProgramError: with its name.
    """
    moved: list[str] = []
    for add in (0.0, 0.5):
        run = _Run(subject, [(name, value + add) for name, value in subject.values])
        watch = Watch(partial(places_of_optimizer, run.optimizer))
        watch.look()
        for step in range(_SPLITS[1] + _MORE):
            try:
                run.play(step, step + 1)
            except ProgramError:
                break  # the schedule is shorter
            watch.look(grows=step == 0)
        moved += watch.moved
    if moved:
        raise ProgramError(tell_shared(subject.kind, moved))


def _tried_on(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int]) -> _Subject:
    """Return the optimizer on the smallest weights on which it steps.

    Raises:
        ProgramError: it steps on none.
    """
    last: Exception | None = None
    for values in _candidates(stepping, model, sparse):
        try:
            subject = _Subject(stepping, values(), frozenset(sparse))
            run = _Run(subject, subject.values)
            run.play(0, _SPLITS[0])
            return replace(subject, kind=type(run.optimizer).__qualname__)
        except Exception as error:
            last = error
    assert last is not None, "there are candidates"
    if isinstance(last, ProgramError):
        raise last
    raise ProgramError(
        f"step() of what Program(optimizer=...) returns raised {describe(last)} on gradients of the layouts that the "
        "program has. It is called once for each batch, without a closure: one that evaluates the loss several times "
        "in a step, as LBFGS and SAM do, cannot be used. Take SGD, Adam or another whose step() needs only gradients."
    ) from last


def _candidates(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int]) -> Iterator[Callable[[], Values]]:
    trained = [(name, each.detach()) for name, each in model.named_parameters() if each.requires_grad]
    yield lambda: examples(stepping, trained, sparse)
    # One that looks for weights by name finds all of them.
    yield lambda: [(name, small(each.ndim, each.dtype, seed)) for seed, (name, each) in enumerate(trained)]
    yield lambda: trained


def _outcome(subject: _Subject, form: Form) -> _Outcome:
    """Try one way of keeping at some steps."""
    lost: list[str] = []
    for split in _OF_SCHEDULES if subject.stepping.scheduler else _SPLITS:
        try:
            found = _tried(subject, form, split)
        except CannotHold as error:
            return _Outcome(f"{subject.kind}.state_dict(){error}, which a checkpoint cannot hold")
        except ProgramError:
            break  # the schedule is shorter
        except Exception as error:
            return _Outcome(f"taking its state out and in raised {describe(error)}")
        if found.broken:
            return found
        lost += found.lost
    return _Outcome(lost=tuple(dict.fromkeys(lost)))


def _tried(subject: _Subject, form: Form, split: int) -> _Outcome:
    end = split + _MORE
    through = _Run(subject, subject.values)
    through.play(0, end)
    one = _Run(subject, subject.values)
    one.play(0, split)
    taken = _pieces_out(one) if form == "pieces" else _whole_out(one)
    other = _Run(subject, [(name, value) for (name, _), value in zip(subject.values, one.values, strict=True)], split)
    (_pieces_in if form == "pieces" else _whole_in)(other, taken)
    lost = tuple(differences(one.held(), other.held()))
    for run in (one, other):
        run.play(split, end, like=one)
    lost += tuple(differences(through.held(), other.held()))
    if lost and _same(through, other):
        for run in (through, other):
            run.play(end, LONG, like=one)
    if not _same(through, other):
        return _Outcome(
            f"{split} steps, its state out, a new one, the state in and {_MORE} more steps are not {end} steps",
            tuple(dict.fromkeys(lost)),
        )
    return _Outcome(lost=lost)


def _same(one: _Run, other: _Run) -> bool:
    return all(map(alike, one.values, other.values))


def _whole_out(run: _Run) -> Any:
    """Return what a checkpoint makes of the user's state dict."""
    tree = to_tree(run.optimizer.state_dict())
    tensors = {name: tensor.clone() for name, tensor in tree.tensors.items()}
    return from_tree(json.loads(json.dumps(tree.plain)), tensors.__getitem__)


def _whole_in(run: _Run, taken: Any) -> None:
    run.optimizer.load_state_dict(taken)


_Piece = tuple[dict[str, Any], frozenset[str], dict[str, Any]]
"""State of a parameter, which of it has an element for each of the parameter's, and its group's settings."""


def _pieces_out(run: _Run) -> list[_Piece]:
    """Return what a checkpoint makes of each parameter's state."""
    groups = {id(each): group for group in run.optimizer.param_groups for each in group["params"]}
    found = []
    for parameter in run.parameters:
        kept = {key: _kept(key, each) for key, each in run.optimizer.state.get(parameter, {}).items()}
        cut = frozenset(key for key, each in kept.items() if is_elementwise(each, parameter))
        found.append((kept, cut, plain_settings(groups.get(id(parameter), {}))))
    return found


def _kept(key: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.to_dense() if value.is_sparse else value
        if why := why_unheld(value):
            raise CannotHold(f"['state'][..][{key!r}] is {why}")
        return value.detach().clone()
    if not (value is None or isinstance(value, (bool, int, float, str))):
        raise CannotHold(f"['state'][..][{key!r}] is a {type(value).__name__}")
    return value


def _pieces_in(run: _Run, taken: Sequence[_Piece]) -> None:
    for parameter, (kept, _, settings) in zip(run.parameters, taken, strict=True):
        for group in run.optimizer.param_groups:
            if any(each is parameter for each in group["params"]):
                group.update(settings)
        if kept:
            run.optimizer.state[parameter] = dict(kept)


def is_elementwise(value: Any, parameter: torch.Tensor) -> bool:
    """Whether a part of an optimizer's state has an element for each of a parameter's, so that it is cut with it."""
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.ndim > 0


def plain_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return the hyper-parameters of a group that are plain values, or tuples of them."""
    return {key: value for key, value in group.items() if key != "params" and _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(not isinstance(each, tuple) and _is_plain(each) for each in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _survives_cuts(subject: _Subject) -> bool:
    """Whether state that was kept of whole weights is that of slices of them, too."""
    names = [name for name, value in subject.values for _ in sliced(value)]
    in_slices = [(name, piece) for name, value in subject.values for piece in sliced(value)]
    one, begun = _Run(subject, subject.values), _Run(subject, in_slices)
    one.play(0, _SPLITS[0])
    begun.play(0, _SPLITS[0])
    taken = _pieces_out(one)
    if any(map(_is_of_whole, taken)):
        return False
    pieces = [piece for value in one.values for piece in sliced(value)]
    resumed = _Run(subject, list(zip(names, pieces, strict=True)), _SPLITS[0])
    _pieces_in(resumed, [part for each, value in zip(taken, one.values, strict=True) for part in _cut(each, value)])
    if differences(begun.held(), resumed.held(), _nearly):
        return False
    for run in (begun, resumed):
        run.play(_SPLITS[0], _SPLITS[0] + _MORE, like=begun)
    return all(map(_nearly, begun.values, resumed.values))


def _is_of_whole(piece: _Piece) -> bool:
    """Whether a tensor of a parameter's state has neither an element for each of its own nor a single one."""
    kept, cut, _ = piece
    return any(isinstance(each, torch.Tensor) and each.numel() > 1 and key not in cut for key, each in kept.items())


def _cut(piece: _Piece, value: torch.Tensor) -> Iterator[_Piece]:
    kept, cut, settings = piece
    for index in range(len(sliced(value))):
        parts = {key: sliced(each)[index] if key in cut else each for key, each in kept.items()}
        # Each slice reads its own; one of a weight without dimensions has one.
        own = {key: each.clone() if isinstance(each, torch.Tensor) else each for key, each in parts.items()}
        if value.ndim == 0:
            own = {key: each.reshape(-1) if isinstance(each, torch.Tensor) else each for key, each in own.items()}
        yield own, cut, settings


def _nearly(one: Any, other: Any) -> bool:
    """Whether two values are the same up to rounding: a slice may be computed in another order."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.is_floating_point():
        return one.numel() == other.numel() and close(one.reshape(-1), other.reshape(-1))
    if isinstance(one, float) and isinstance(other, float):
        return close(torch.tensor(one), torch.tensor(other))
    return alike(one, other)
