"""Finds out, before training, how an optimizer's state is kept so that a run goes on bit for bit.

    pieces    optimizer.state[parameter] and what is plain in its group: each rank has its own part
    whole     what the user's state_dict() gives, for load_state_dict() to take: the optimizer is updated whole

Each way is tried: some steps, state out, a new optimizer, state in and two more must be as many steps at once, and the
new optimizer must hold all that the old one does, wherever it holds it. On small weights that takes milliseconds.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn

from nfold.capture.computing.step_outcome import close
from nfold.capture.optimizers.changed_outside import shared_by
from nfold.capture.optimizers.lost_state import LONG, told_broken, told_lost, told_shared
from nfold.capture.optimizers.optimizer_runs import MORE, SPLITS, Run, Subject, same, tried_on
from nfold.capture.optimizers.state_tree import CannotHold, from_tree, to_tree, why_unheld
from nfold.capture.optimizers.step_scope import Scope, Values, parameters_of, sliced
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.side_effects.held_values import alike, differences
from nfold.errors import ProgramError
from nfold.program import describe

Form = Literal["pieces", "whole"]

_OF_SCHEDULES = (2, 5, 12)
"""Torch's schedules of several parts change at some step."""
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
    found = tried_on(stepping, model, sparse)
    check_schedule(stepping, found.values)
    shared = shared_by(found)
    kept = _kept_as(found, scope)
    if not shared:
        return kept
    note = "; ".join(each for each in (told_shared(found.kind, shared), kept.note) if each)
    return replace(kept, note=note, forgets=(*kept.forgets, *shared))


def _kept_as(found: Subject, scope: Scope) -> Keeping:
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
    one, other = (stepping.build(parameters_of(values)) for _ in range(2))
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


def _outcome(subject: Subject, form: Form) -> _Outcome:
    """Try one way of keeping at some steps."""
    lost: list[str] = []
    for split in _OF_SCHEDULES if subject.stepping.scheduler else SPLITS:
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


def _tried(subject: Subject, form: Form, split: int) -> _Outcome:
    end = split + MORE
    through = Run(subject, subject.values)
    through.play(0, end)
    one = Run(subject, subject.values)
    one.play(0, split)
    taken = _pieces_out(one) if form == "pieces" else _whole_out(one)
    other = Run(subject, [(name, value) for (name, _), value in zip(subject.values, one.values, strict=True)], split)
    (_pieces_in if form == "pieces" else _whole_in)(other, taken)
    lost = tuple(differences(one.held(), other.held()))
    for run in (one, other):
        run.play(split, end, like=one)
    lost += tuple(differences(through.held(), other.held()))
    if lost and same(through, other):
        for run in (through, other):
            run.play(end, LONG, like=one)
    if not same(through, other):
        return _Outcome(
            f"{split} steps, its state out, a new one, the state in and {MORE} more steps are not {end} steps",
            tuple(dict.fromkeys(lost)),
        )
    return _Outcome(lost=lost)


def _whole_out(run: Run) -> Any:
    """Return what a checkpoint makes of the user's state dict."""
    tree = to_tree(run.optimizer.state_dict())
    tensors = {name: tensor.clone() for name, tensor in tree.tensors.items()}
    return from_tree(json.loads(json.dumps(tree.plain)), tensors.__getitem__)


def _whole_in(run: Run, taken: Any) -> None:
    run.optimizer.load_state_dict(taken)


_Piece = tuple[dict[str, Any], frozenset[str], dict[str, Any]]
"""State of a parameter, which of it has an element for each of the parameter's, and its group's settings."""


def _pieces_out(run: Run) -> list[_Piece]:
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


def _pieces_in(run: Run, taken: Sequence[_Piece]) -> None:
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


def _survives_cuts(subject: Subject) -> bool:
    """Whether state that was kept of whole weights is that of slices of them, too."""
    names = [name for name, value in subject.values for _ in sliced(value)]
    in_slices = [(name, piece) for name, value in subject.values for piece in sliced(value)]
    one, begun = Run(subject, subject.values), Run(subject, in_slices)
    one.play(0, SPLITS[0])
    begun.play(0, SPLITS[0])
    taken = _pieces_out(one)
    if any(map(_is_of_whole, taken)):
        return False
    pieces = [piece for value in one.values for piece in sliced(value)]
    resumed = Run(subject, list(zip(names, pieces, strict=True)), SPLITS[0])
    _pieces_in(resumed, [part for each, value in zip(taken, one.values, strict=True) for part in _cut(each, value)])
    if differences(begun.held(), resumed.held(), _nearly):
        return False
    for run in (begun, resumed):
        run.play(SPLITS[0], SPLITS[0] + MORE, like=begun)
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
