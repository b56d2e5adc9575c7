"""Decides what is true of a program whatever captures it: may its batch be cut, who gets a gradient, what does it keep.

Why its batch may not be cut: forward takes something over from call to call, the loss says by its settings that it is
no mean, `proof` finds that samples mix, or, where that proves nothing, a trial of `independence` finds it. The reason
becomes `ModelGraph.indivisible`, with which `planning/choosing/wishes.py` refuses more than one chunk.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.example import GATE_SIZE, LONGEST, SECOND_LONGEST, SIZES, THIRD_SIZE, Example
from nfold.capture.computing.random import RandomState, seed_all
from nfold.capture.computing.step_outcome import close
from nfold.capture.independence.batch_cut import PARTS
from nfold.capture.independence.declared_loss import why_no_mean
from nfold.capture.independence.divisible import why_indivisible, why_unlike_alone
from nfold.capture.independence.least_samples import Least, find_least
from nfold.capture.independence.padding import WHICH, why_padding
from nfold.capture.independence.sample_mean import NO_MEAN
from nfold.capture.independence.whole_batches import whole_batches
from nfold.capture.program.autocast import plain_loss
from nfold.capture.program.program_graph import Loss, dotted
from nfold.capture.program.trial import try_forward, try_loss, try_step
from nfold.capture.program.weight_writes import WeightWrites
from nfold.capture.side_effects.carried_over import CarriedOver, carried_over
from nfold.capture.side_effects.changed_by_forward import told_held_by_model
from nfold.capture.side_effects.held_values import alike
from nfold.capture.side_effects.hooks import hooked_modules
from nfold.capture.side_effects.kept_results import is_result, let_go, only_looked_at
from nfold.capture.side_effects.module_states import changes, held_by_several, loss_snapshot, snapshot
from nfold.capture.side_effects.moving import Mover, Moving
from nfold.capture.side_effects.recomputed_state import not_recomputed
from nfold.capture.side_effects.refusals import refuse_changes, refuse_made, refuse_shared, tensors_by_name
from nfold.capture.side_effects.shared_state import Watch, places_of_loss, places_of_model
from nfold.capture.tracing.fx_tracing import is_leaf
from nfold.core.condition import Condition
from nfold.errors import ProgramError


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramFacts:
    """See the fields of the same names in `ModelGraph`."""

    indivisible: str
    conditions: tuple[Condition, ...]
    unproved: str
    gradients: frozenset[str]
    """Parameters that got a gradient."""
    sparse: Mapping[str, int]
    """Parameters whose gradient is always sparse, and in how many dimensions."""
    static_gradients: bool
    stateful: tuple[str, ...]
    """Modules that carry state, other than batch-norm statistics, from one forward to the next."""
    written: frozenset[str]
    """Weights that forward itself writes to: only an operator that has them for itself may."""
    hooked: tuple[str, ...]
    """Modules with hooks of the user's."""
    least: Least
    """See `least_samples`."""
    only_samples: int
    why_pairs: str
    unkept: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Calls:
    losses: list[torch.Tensor]
    gradients: list[frozenset[str]]
    changed: list[tuple[str, str]]
    """(module path, attribute), weights included."""
    foreign_random: bool
    sparse: dict[str, int]
    moved: list[Mover]
    """What a second call with the same batch and seed moves, and no tensor."""


def facts_and_batches(
    fresh: Callable[[], nn.Module], loss: Loss, example: Example, *, evaluates: bool
) -> tuple[ProgramFacts, Example]:
    """Find out what is true of a program, and on which batches it computes.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        evaluates: whether the model is called in eval mode between steps.

    Returns:
        That, and batches on which it computes whatever size they are asked for.

    Raises:
        ProgramError: the program fails by itself.
    """
    try:
        facts = find_facts(fresh, loss, example, evaluates=evaluates)
        for size in (THIRD_SIZE, GATE_SIZE):
            inputs, targets = example.batch(size)
            try_loss(try_forward(fresh(), inputs), targets, loss)
        return facts, example
    except ProgramError as refusal:
        found = whole_batches(fresh, loss, example, refusal)
        if found is None:
            raise
    whole, least, why = found
    facts = find_facts(fresh, loss, whole, evaluates=evaluates)
    return replace(facts, indivisible=facts.indivisible or why, least=least), whole


def find_facts(
    fresh: Callable[[], nn.Module],
    loss: Loss,
    example: Example,
    *,
    divisible: bool | None = None,
    evaluates: bool = False,
) -> ProgramFacts:
    """Try a program on copies of its model: a few forward passes over a handful of samples.

    Args:
        fresh: makes copies.
        loss: the user's.
        example: where batches come from.
        divisible: whether chunks are known to be allowed or not, which saves half of the time.
        evaluates: whether the model is called in eval mode between steps.

    Raises:
        ProgramError: the program fails by itself.
    """
    bare = plain_loss(loss)
    loss_state = loss_snapshot(bare)
    model = fresh()
    built = tensors_by_name(model)
    around, around_loss = Watch(partial(places_of_model, model)), Watch(partial(places_of_loss, bare))
    hooked = hooked_modules(model)  # some libraries hang hooks of their own on a model when it is called
    calls = _call(model, loss, example, (around, around_loss), looks=divisible is None)
    refuse_made([name for name in tensors_by_name(model) if name not in built], model)
    if divisible is None:
        refuse_shared(around.moved)
        refuse_changes([*changes(loss_state, loss_snapshot(bare)), *(("", name) for name in around_loss.moved)])
    carried = CarriedOver() if divisible else carried_over(fresh, loss, example, evaluates=evaluates)
    if carried.is_known and not carried.shows and close(calls.losses[0], calls.losses[1]):
        kept = [key for key in calls.changed if key not in carried.changed and only_looked_at(model, *key)]
        calls.changed[:] = [key for key in calls.changed if key not in kept]
    calls.changed.extend(key for key in carried.changed if key not in calls.changed)
    reason = _EVALUATED if carried.evaluation_shows else ""
    reason = reason or _carried_state(calls, model, carried) or (_why_fickle(calls) if example.varying else "")
    unproved = ""
    conditions: tuple[Condition, ...] = ()
    notes = []
    if divisible is None and not (reason or example.only):
        reason, conditions, unproved = _of_samples(fresh, loss, example)
    if calls.foreign_random:
        notes.append("forward draws from Python's or numpy's generator: each chunk seeds them before it starts")
    if own := around_loss.given_gradients():
        notes.append(_told_own_weights(own))
    forgotten = _forgotten(model, calls.changed) or ([_UNSEEN] if carried.shows else [])
    forgotten = not_recomputed(fresh, loss, example, forgotten)
    moved = [each for each in calls.moved if not _keeps(model, each.name)]
    shows = bool(forgotten) and (carried.shows or not alike(*calls.losses[:2]))
    if forgotten and not (moved or shows):
        notes.append(f"{_told_forgotten(forgotten)}. {_KEEP_IT}")
    hooked = tuple(dict.fromkeys((*hooked, *hooked_modules(model, backward=True))))
    if whole := [path for path in hooked if not is_leaf(model.get_submodule(path))]:
        names = ", ".join(path or "the model itself" for path in whole)
        notes.append(f"kept whole, since no tracer runs their hooks as a call does: {names}")
    seeks_least = divisible is None and not example.only
    least = find_least(fresh(), loss, example) if seeks_least else Least()
    why_pairs = "the batch cannot be cut"
    if seeks_least and not reason:
        why_pairs = _why_untried(least, unproved, calls) or why_unlike_alone(fresh, loss, example)
    stateful = tuple(dict.fromkeys(path for path, _ in calls.changed))
    by_several = held_by_several(model, calls.changed)
    if told := told_held_by_model(model, calls.changed, by_several=by_several):
        notes.append(told)
    return ProgramFacts(
        indivisible=reason,
        conditions=conditions,
        unproved=unproved,
        gradients=frozenset.union(*calls.gradients),
        sparse={name: dims for name, dims in calls.sparse.items() if dims},
        static_gradients=len(set(calls.gradients)) == 1,
        stateful=("",) if by_several or carried.evaluation_shows or (carried.shows and not stateful) else stateful,
        written=frozenset(map(dotted, calls.changed))
        & {name for name, _ in model.named_parameters(remove_duplicate=False)},
        hooked=hooked,
        least=least,
        only_samples=example.only,
        why_pairs=why_pairs,
        unkept=_told_unkept(moved, [*(forgotten if shows else []), *_forgotten(model, carried.by_evaluation)]),
        notes=tuple(notes),
    )


def _told_own_weights(names: list[str]) -> str:
    return (
        f"the loss uses weights that nothing trains: those in {', '.join(names[:3])}. Make them the model's, which may "
        "return all that the loss needs, or freeze them with requires_grad_(False)"
    )


def _of_samples(fresh: Callable[[], nn.Module], loss: Loss, example: Example) -> tuple[str, tuple[Condition, ...], str]:
    """Say why a batch cannot be cut, what data must meet for it, and why that had to be tried if it is not proved."""
    if declared := why_no_mean(loss, example.batch(1)[1]):
        return f"{NO_MEAN}: {declared}", (), ""
    from nfold.capture.proof.prove import prove  # loads torch's tracer, which ranks that do not prove can do without

    proof = prove(fresh(), loss, example)
    if proof.verdict == "unknown":
        reason = why_indivisible(fresh, loss, example)
        return reason and (_why_parts_differ(fresh, example) or reason), proof.conditions, proof.reason
    return (proof.reason if proof.verdict == "mixed" else ""), proof.conditions, ""


def _why_parts_differ(fresh: Callable[[], nn.Module], example: Example) -> str:
    """Say why parts of a batch are other samples than the batch, or come out otherwise for how far they are padded."""
    told = example.why_unlike_parts(PARTS, WHICH) if example.why_unlike_parts else ""
    return told or why_padding(fresh, example)


def _why_untried(least: Least, unproved: str, calls: _Calls) -> str:
    """Say why it need not be tried whether a chunk may have a single sample; empty: it must."""
    if least.samples > 1:
        return "it does not compute on one"
    if unproved:  # while it trains, samples of a chunk are compared with each other
        return "nobody could prove that its samples do not see each other"
    if calls.foreign_random:
        return "it draws from numpy's or Python's generator, so one alone cannot be compared"
    return ""


def _call(model: nn.Module, loss: Loss, example: Example, watches: tuple[Watch, ...], *, looks: bool) -> _Calls:
    """Train nothing, but compute: the same batch twice, then one of another size, and of another length if there is.

    Args:
        model: a throw-away copy.
        loss: the user's.
        example: where batches come from.
        watches: of what is shared.
        looks: whether to look for what the second call moves.
    """
    large, small = SIZES
    calls = _Calls([], [], [], False, {}, [])
    state: dict[tuple[str, str], Any] = {}
    foreign, sparse = False, dict[str, int]()
    moving, where = Moving([]), list[Any]()
    others = [(small, LONGEST), (small, SECOND_LONGEST)] if example.varying else []  # another length may go another way
    for size, which in ((large, 0), (large, 0), (small, 1), *others):
        seed_all(0)
        before = RandomState()
        beside = [watch.tensors() for watch in watches]
        writes = WeightWrites(model, {name: held for place in beside for name, held in place.items()})
        with _noting_gradients(model, sparse) as found, writes:
            calls.losses.append(try_step(model, loss, example.batch(size, which)).detach())
        foreign = foreign or before.others_moved()
        calls.gradients.append(frozenset(found))
        for watch, held in zip(watches, beside, strict=True):
            watch.look()
            watch.note(name for name in writes.places() if name in held)
        now = snapshot(model)
        # A first call may build what later ones use, but not from a batch: of that each rank would see another part.
        found_now = (*(changes(state, now) if state else ()), *writes.weights())
        calls.changed.extend(dict.fromkeys(key for key in found_now if key not in calls.changed))
        if not state and looks:
            moving = Moving([model])  # a first call may make what others draw from
            where = moving.state()
        elif which == 0:
            calls.moved.extend(moving.moved(where))
        state = now
    return _Calls(calls.losses, calls.gradients, calls.changed, foreign, sparse, calls.moved)


@contextlib.contextmanager
def _noting_gradients(model: nn.Module, sparse: dict[str, int]) -> Iterator[set[str]]:
    """Note which parameters get a gradient, and in how many dimensions it is sparse.

    Each is dropped at once: all of them would be the model once more.
    """
    found: set[str] = set()

    def note(name: str, parameter: torch.Tensor) -> None:
        found.add(name)
        gradient = parameter.grad
        dims = 0 if gradient is None else _sparse_dims(gradient)
        sparse[name] = min(dims, sparse.get(name, dims))
        parameter.grad = None

    with contextlib.ExitStack() as hooks:
        for name, each in model.named_parameters():
            if each.requires_grad:
                hook: Any = each.register_post_accumulate_grad_hook(partial(note, name))  # type: ignore[no-untyped-call]
                hooks.enter_context(hook)
        yield found


def _sparse_dims(gradient: torch.Tensor) -> int:
    """Return in how many dimensions a gradient is sparse; what optimizers do with complex ones is the same if dense."""
    return gradient.sparse_dim() if gradient.layout is torch.sparse_coo and not gradient.is_complex() else 0


def _forgotten(model: nn.Module, changed: list[tuple[str, str]]) -> list[str]:
    """Return what changes and is in no state dict: plain attributes of modules that say nothing of it."""
    kept = model.state_dict()
    names = {path: {name.rpartition(".")[2] for name in kept if name.rpartition(".")[0] == path} for path, _ in changed}
    return [
        dotted((path, name))
        for path, name in changed
        if name not in names[path] and not _says_more(model.get_submodule(path))
    ]


_EVALUATED = (
    "a forward in eval mode changes what the next one in training computes, and workers share the evaluations. Let it "
    "change the model only while self.training"
)
_UNSEEN = "something that nfold cannot see"
_KEEP_IT = (
    "Make it a persistent buffer that has its shape when model() has built it, or a registered module, or give the "
    "module get_extra_state and set_extra_state"
)


def _told_forgotten(names: list[str]) -> str:
    return (
        f"forward changes {', '.join(names)}, which no checkpoint holds: a run that goes on begins with what model() "
        "builds"
    )


def _told_unkept(moved: list[Mover], shown: list[str]) -> str:
    """Say what of the model a run that goes on would not have, although its results follow from it."""
    if drawn := [each.name for each in moved if each.kind == "generator"]:
        return (
            f"forward draws from {', '.join(drawn[:3])}, a generator of its own, and no checkpoint holds where it is: "
            "after --resume other numbers would be drawn. Draw from torch's own, which nfold seeds for each step "
            f"(leave out generator=), {_ANYWAY}"
        )
    names = list(dict.fromkeys((*(each.name for each in moved), *shown)))
    return f"{_told_forgotten(names[:3])}. {_KEEP_IT}, {_ANYWAY}" if names else ""


_ANYWAY = "or train with --checkpoint-every 0, which keeps nothing to go on from."


def _keeps(model: nn.Module, name: str) -> bool:
    """Whether the module that holds something says where it is."""
    owners = [(path, module) for path, module in model.named_modules() if name.startswith(f"{path}." if path else "")]
    return _says_more(max(owners, key=lambda each: len(each[0]))[1])


def _says_more(module: nn.Module) -> bool:
    return type(module).get_extra_state is not nn.Module.get_extra_state


def _carried_state(calls: _Calls, model: nn.Module, carried: CarriedOver) -> str:
    first, second, *_ = calls.losses
    if calls.changed:
        names = ", ".join(map(dotted, calls.changed[:3]))
        more = f" and {len(calls.changed) - 3} more" if len(calls.changed) > 3 else ""
        results = [is_result(model, *key, carried=carried.shows or key in carried.changed) for key in calls.changed]
        if close(first, second) and all(results):
            return (
                f"forward keeps what it has computed in {names}{more}, of which only that of the last chunk would be "
                f"left. Let go of it before forward returns: {let_go(model, *calls.changed[0])}. Where the loss "
                "needs it, return it as a part of the outputs; what is only looked at can be kept if not self.training"
            )
        return (
            f"forward changes {names}{more}, so its result depends on the forward passes before it: "
            "cut into chunks, it would be called more often"
        )
    if not close(first, second):
        return (
            f"a second forward with the same input, weights and random seed gives another loss "
            f"({first.item():.6g}, then {second.item():.6g}): {_UNSEEN} is carried over"
        )
    if carried.shows:
        return f"a forward gives another loss where there was one at other weights before it: {_UNSEEN} is carried over"
    return ""


def _why_fickle(calls: _Calls) -> str:
    """Say that batches of one length train other parameters than those of another."""
    found = sorted(frozenset.union(*calls.gradients) - frozenset.intersection(*calls.gradients))
    if not found:
        return ""
    named = f"{len(found)} parameters, {found[0]!r} among them," if len(found) > 1 else f"{found[0]!r}"
    return (
        f"{named} got a gradient from batches of some shapes and none from others. Which parameters are used must not "
        "change from batch to batch where a batch is spread over workers"
    )
