"""Decides whether samples of a batch see each other, by following the program once over its operators.

Stated as torch's DTensor states a sharded batch and vmap its batching rules: which dimension of each tensor is the
batch's, and what each operator does to it.
"""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from nfold.capture.batches.example import LONGEST, SECOND_LONGEST, Example
from nfold.capture.batches.tree import map_tensors, paths_of
from nfold.capture.computing.backward_history import backward_nodes
from nfold.capture.computing.random import undisturbed
from nfold.capture.computing.replacing import replaced
from nfold.capture.independence.sample_mean import NO_MEAN
from nfold.capture.program.calling import call
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.users_line import UNCHECKED, is_in_distributions, is_torchs, users_line_of
from nfold.capture.proof.conditions import INPUTS, OUTPUTS, computed, parts_needed
from nfold.capture.proof.deciding import why_another_way
from nfold.capture.proof.follow import Follower, TooLong, following
from nfold.capture.proof.lengths import NoLength, of_any_length
from nfold.capture.proof.rules.kinds import MEAN, SHARED, TOTAL, Kind, Mixed, SampleRows, Unknown
from nfold.capture.proof.tape import Path
from nfold.capture.proof.writing import CannotWrite, written_program
from nfold.capture.side_effects.hooks import hooked_modules
from nfold.capture.tracing.observe import BatchNorm
from nfold.core.condition import Condition

_SIZE = 13
"""Samples that stand for any number of them: few, and seldom a size of anything else."""
_FIXED = "Python goes through samples one by one, or takes their number as a plain one"
SEES_OTHERS = "an output of the model depends on the other samples of its batch, not only on its own"


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What is known of how a program treats its samples."""

    verdict: Literal["proved", "mixed", "unknown"]
    reason: str = ""
    """Why not proved, in the user's words."""
    conditions: tuple[Condition, ...] = ()
    """What must hold of all data for the proof to hold."""
    num_operators: int = 0


def prove(model: nn.Module, loss: Loss, example: Example) -> Proof:
    """Follow a program once. About a millisecond for each operator that PyTorch calls; no memory for activations.

    Where lengths differ between batches it is followed at two of them, so that its conditions hold for any.

    Args:
        model: a throw-away copy in training mode.
        loss: the user's.
        example: where batches come from; its values do not matter, but for those of the conditions.
    """
    if not example.varying:
        proof, numbers = _followed(model, loss, example.batch(_SIZE, 4), example.largest)
    else:
        batches = [example.batch(_SIZE, which) for which in (LONGEST, SECOND_LONGEST)]
        (proof, numbers), (other, others) = (_followed(model, loss, batch, example.largest) for batch in batches)
        if proof.verdict == "proved" == other.verdict:
            try:
                numbers = _of_any_length(numbers, others, batches)
            except (NoLength, ValueError):
                return _unknown("what the loss divides by is made in another way for other lengths")
        proof = other if proof.verdict == "proved" else proof
    if proof.verdict == "proved":
        proof = _with_conditions(proof, numbers, model, example)
    if not example.is_joined_by_program or proof.verdict != "proved":
        return proof
    # What was followed is one batch as it was joined.
    doubt = "collate, which is the program's own, may join samples by what the others are"
    return replace(proof, verdict="unknown", reason=doubt)


_Numbers = list[tuple[str, str]]
"""What the loss divides by, as `conditions` computes it, and what is done with it."""


def _of_any_length(numbers: _Numbers, others: _Numbers, batches: list[tuple[Any, Any]]) -> _Numbers:
    one, other = ({path: tensor.shape for path, tensor in _leaves(batch)} for batch in batches)
    lengths = {
        (path, dim): (size, other[path][dim])
        for path, shape in one.items()
        for dim, size in enumerate(shape)
        if path in other and len(shape) == len(other[path])
    }
    pairs = zip(numbers, others, strict=True)
    return [(of_any_length(program, there, lengths), why) for (program, why), (there, _) in pairs]


def _leaves(batch: tuple[Any, Any]) -> list[tuple[Path, torch.Tensor]]:
    return [((side, *path), tensor) for side, value in enumerate(batch) for path, tensor in paths_of(value)]


def _followed(model: nn.Module, loss: Loss, batch: tuple[Any, Any], largest: int) -> tuple[Proof, _Numbers]:
    leaves = _leaves(batch)
    if not any(tensor.ndim and tensor.shape[0] == _SIZE for _, tensor in leaves):
        return _unknown("no part of a batch counts its samples in its first dimension"), []
    _keep_momentum(model)
    weights = [*model.parameters(), *model.buffers()]
    with (
        redirect_stdout(io.StringIO()),
        _own_backwards(model) as own,
        following(leaves, _SIZE, weights) as (follower, stand_in),
    ):
        try:
            outputs = call(model, map_tensors(stand_in, batch[0]))
            _give_outputs(follower, outputs)
            value = loss(outputs, map_tensors(stand_in, batch[1]))
        except Exception as error:
            return _unknown(_why_lost(error)), []
        kind = follower.kind(value) if isinstance(value, torch.Tensor) else Unknown(what="the loss is no tensor")
    if follower.samples.symbol in follower.env.replacements:
        place = f" ({follower.fixed_at})" if follower.fixed_at else ""
        return _unknown(f"{_FIXED}{place}"), []
    found = _judged(kind, outputs, follower)
    if found.verdict != "proved":
        return found, []
    if own := [*own, *_own_functions(value)]:
        return _unknown(f"{own[0]} is the program's own, and may look at the whole batch"), []
    decision, is_mixed = why_another_way(follower.env, follower.samples.symbol, _SIZE, largest)
    if decision:
        mixed = Proof(verdict="mixed", reason=f"the program {decision}")
        return (mixed if is_mixed else _unknown(decision)), []
    return _written(found, follower)


def _give_outputs(follower: Follower, outputs: Any) -> None:
    """Let the loss divide by what it is given without a gradient."""
    for path, tensor in paths_of(outputs):
        is_own = isinstance(follower.kind(tensor), SampleRows) and not tensor.requires_grad
        if is_own and follower.tape.origin(tensor) is None:
            follower.tape.add_data(tensor, (OUTPUTS, *path))


def _written(proof: Proof, follower: Follower) -> tuple[Proof, _Numbers]:
    found: _Numbers = []
    for number, why in follower.tape.numbers:
        try:
            found.append((written_program(number, follower.tape, follower.samples), why))
        except CannotWrite:
            return _unknown(f"the loss {why}"), []
    return proof, found


def _keep_momentum(model: nn.Module) -> None:
    """Let no batch norm take its momentum from a count of calls, which is a value: statistics are excused anyway."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and module.momentum is None:
            module.momentum = 0.1


def _unknown(reason: str) -> Proof:
    return Proof(verdict="unknown", reason=reason)


def _why_lost(error: Exception) -> str:
    """Say where a program could not be followed, in the user's words."""
    if isinstance(error, TooLong):
        return "it has more operators than there is time to follow"
    line = users_line_of(error)
    place = f" ({line})" if line else ""
    name = type(error).__name__
    if "DataDependent" in name or "data-dependent" in str(error):
        advice = f"; {UNCHECKED} it can be followed" if is_in_distributions(error) else ""
        return f"it decides on values of tensors{place}{advice}"
    return f"it cannot be followed{place}"


def _judged(kind: Kind, outputs: Any, follower: Follower) -> Proof:
    if kind in (MEAN, SHARED):
        return Proof(verdict="proved", num_operators=follower.num_operators)
    if isinstance(kind, Unknown):
        return _unknown(str(kind))
    if kind == TOTAL:
        return Proof(verdict="mixed", reason=f"{NO_MEAN}: it is a sum over them, which grows with their number")
    if isinstance(kind, Mixed):
        return Proof(verdict="mixed", reason=_why_mixed(kind, outputs, follower))
    return _unknown("the loss has a value for each sample")


def _why_mixed(kind: Mixed, outputs: Any, follower: Follower) -> str:
    for path, tensor in paths_of(outputs):
        if follower.kind(tensor) == kind:
            if any(follower.samples.multiple(size) for size in tensor.shape):
                return f"{SEES_OTHERS}: forward {kind}"
            return f"{NO_MEAN}: output {_named(path)} of the model is made from the whole batch, forward {kind}"
    return f"{NO_MEAN}: it {kind}"


def _named(path: Path) -> str:
    return "".join(f"[{key!r}]" for key in path) if path else "itself"


def _own_functions(value: torch.Tensor) -> list[str]:
    """Return the user's functions with a backward of their own that are in the history of a loss."""
    found: list[str] = []
    for node in backward_nodes(value):
        kind = getattr(node, "_forward_cls", None)
        if kind is not None and not kind.__module__.startswith("torch."):
            found.append(f"the backward of {kind.__name__}")
    return found


@contextlib.contextmanager
def _own_backwards(model: nn.Module) -> Iterator[list[str]]:
    """Collect what of the user's computes gradients, which operators of forward do not show."""
    found = [f"a hook on the gradient of module {path!r}" for path in hooked_modules(model, backward=True)]
    register, enter = torch.Tensor.register_hook, torch.autograd.graph.saved_tensors_hooks.__enter__
    node: Any = torch._C.TensorBase.grad_fn

    def node_of(tensor: torch.Tensor) -> Any:
        # What registers a hook on it is C++, and leaves no trace that Python could see.
        caller = sys._getframe(1).f_code.co_filename
        if not is_torchs(caller) or caller == torch.autograd.graph.__file__:
            found.append("what it does with grad_fn")
        return node.__get__(tensor)

    def registered(tensor: torch.Tensor, hook: Callable[..., Any]) -> Any:
        found.append("a hook on a gradient")
        return register(tensor, hook)  # type: ignore[no-untyped-call]

    def entered(hooks: Any) -> None:
        if not type(hooks).__module__.startswith("torch.") or not hooks.pack_hook.__module__.startswith("torch."):
            found.append("a hook on what is saved for backward")
        enter(hooks)

    with (
        replaced(torch.Tensor, "register_hook", registered),
        replaced(torch.Tensor, "grad_fn", property(node_of)),
        replaced(torch.autograd.graph.saved_tensors_hooks, "__enter__", entered),
    ):
        yield found


def _with_conditions(proof: Proof, numbers: _Numbers, model: nn.Module, example: Example) -> Proof:
    """Return the proof with what it assumes of data, if that holds of some samples."""
    places = [(5, 0), (4, 1), (_SIZE, 4)] + ([(1, LONGEST), (1, SECOND_LONGEST)] if example.varying else [])
    batches: list[tuple[int, tuple[Any, ...]]] = [(size, example.batch(size, which)) for size, which in places]
    needed = [parts_needed(program) for program, _ in numbers]
    if any(parts >= {INPUTS, OUTPUTS} for parts in needed):
        return Proof(verdict="mixed", reason=f"{NO_MEAN}: it {numbers[0][1]}, which is made of inputs and outputs")
    if any(OUTPUTS in parts for parts in needed):
        try:
            batches = [(size, _with_outputs(model, *batch)) for size, batch in batches]
        except Exception as error:
            return _unknown(f"the loss {numbers[0][1]}, and a copy of the model raised {type(error).__name__}")
    found: dict[str, Condition] = {}
    for program, why in numbers:
        try:
            shares = {computed(program, batch, size) / size for size, batch in batches}
        except Exception as error:  # an operator that computes shapes only, or another number than one
            return _unknown(f"the loss {why}, which cannot be computed by itself: {type(error).__name__}")
        if max(shares) - min(shares) > 1e-6 * max(map(abs, shares)):
            return Proof(verdict="mixed", reason=f"{NO_MEAN}: it {why}, and samples differ in it")
        found[program] = Condition(program=program, per_sample=max(shares), why=why)
    return replace(proof, conditions=tuple(found.values()))


def _with_outputs(model: nn.Module, inputs: Any, targets: Any) -> tuple[Any, ...]:
    with undisturbed(), torch.no_grad():
        return inputs, targets, call(model, map_tensors(torch.clone, inputs))
