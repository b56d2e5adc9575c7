"""Finds out whether a batch may be cut into chunks: what each sample adds to outputs, loss and gradients is its own.

Batch norm is excused: its statistics are per chunk under every plan. A program that asks for autocast is compared
without it, if it can compute so: whether a batch can be cut does not depend on types, and coarse ones hide much.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.batches.tree import map_tensors, may_list_samples, paired, tensors_of
from nfold.capture.computing.precision import SINGLE, PrecisionWatch
from nfold.capture.computing.random import RandomState
from nfold.capture.computing.steady_draws import SteadyDraws
from nfold.capture.computing.step_outcome import StepOutcome, close, difference, outcome
from nfold.capture.independence.batch_cut import (
    SIZE,
    BatchCut,
    are_its_rows,
    cut_example,
    cut_in_double,
    doubled,
    has_rows,
    in_double,
    is_all_rows,
    rows_of,
    split,
)
from nfold.capture.independence.comparisons import Comparison, both, first
from nfold.capture.independence.mixing_line import mixing_line
from nfold.capture.independence.sample_mean import not_a_mean, why_unlike_parts
from nfold.capture.program.autocast import AutocastLoss, plain_loss, without_autocast
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.trial import try_forward, try_step
from nfold.capture.side_effects.hooks import hooked_modules
from nfold.capture.tracing.observe import BatchNorm
from nfold.errors import ProgramError
from nfold.program import describe

_ALONE = (1, 1, 1)
_SCALES = (1e-3, 1e6)
"""Of the loss: a hook on a module that clips gradients shows at one of them, whatever its limit is."""
_SHIFT = 0.1
"""Of weights, for the trial at others, as a part of what they are in the mean."""
ROUNDINGS = 8
"""By how many last bits of their type the gradients of chunks may differ that are added in another order."""


def why_indivisible(fresh: Callable[[], nn.Module], loss: Loss, example: Example) -> str:
    """Compare a batch with its chunks: twice at the first weights, once at others, in float64 if it computes so.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.

    Returns:
        Why the batch cannot be cut, in the user's words; empty if it can.
    """
    finest = fresh().double()
    doubled = in_double(example)
    quiet(finest)
    bare = plain_loss(loss)
    with without_autocast(finest):
        if _computes(finest, bare, doubled.batch(SIZE, 2)):
            return _compare_often(finest, bare, doubled)
    del finest
    model = fresh()
    quiet(model)
    if isinstance(loss, AutocastLoss):
        with without_autocast(model):
            if _computes(model, loss.loss, example.batch(SIZE, 2)):
                return _compare_often(model, loss.loss, example)
    return _compare_often(model, loss, example)


def why_unlike_alone(fresh: Callable[[], nn.Module], loss: Loss, example: Example) -> str:
    """Compare outputs and loss of a batch with those of its samples one by one, for a program of proved samples.

    The proof knows two samples and more: of one alone, dimensions of one entry vanish, or fit what they should not.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.

    Returns:
        How a sample alone differs, in the user's words; empty if only by rounding.
    """
    model = fresh()
    quiet(model)
    with torch.no_grad():
        for which in (2, 3):
            try:
                found = _difference(model, loss, cut_example(example, which, _ALONE), with_gradients=False)
            except Exception as error:
                return f"of one alone it raises {describe(error).rstrip('.')}"
            if found:
                return "of one alone it computes something else"
    return ""


def why_unlike_now(fresh: Callable[[], nn.Module], loss: Loss, all_of_it: BatchCut, some: BatchCut) -> str:
    """Compare samples apart and together at the weights of now.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        all_of_it: whose outputs and loss are compared.
        some: of them, whose gradients are compared too.

    Returns:
        How they differ, in the user's words; empty if only by rounding.

    Raises:
        Exception: neither can be compared.
    """
    finest, bare = fresh().double(), plain_loss(loss)
    quiet(finest)
    with without_autocast(finest):
        if _computes(finest, bare, map_tensors(lambda each: doubled(each).clone(), some.whole)):  # may write in place
            all_of_it, some = cut_in_double(all_of_it), cut_in_double(some)
            return first(_comparisons(finest, bare, all_of_it, some))
    del finest
    model = fresh()
    quiet(model)
    return both(_comparisons(model, loss, all_of_it, some))


def _comparisons(model: nn.Module, loss: Loss, all_of_it: BatchCut, some: BatchCut) -> list[Comparison]:
    def outputs() -> str:
        with torch.no_grad():
            return _difference(model, loss, all_of_it, with_gradients=False)

    return [outputs, lambda: _difference(model, loss, some)]


def _computes(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> bool:
    """Tell whether a program that asks for autocast computes without it: some hold tensors of both types."""
    try:
        try_step(model, loss, batch)
    except ProgramError:
        return False
    finally:
        model.zero_grad(set_to_none=True)
    return True


def _compare_often(model: nn.Module, loss: Loss, example: Example) -> str:
    # Other samples may show what the first ones did not, and other weights: some gradients are only rounding at first.
    reason = _compare(model, loss, example, 2) or _compare(model, loss, example, 3)
    if example.is_joined_by_program and not example.varying and is_all_rows(example.batch(SIZE, 3)):
        # Parts were joined with draws held still; these are not.
        reason = reason or _compare(model, loss, replace(example, make_parts=None), 3)
    for scale in _SCALES if hooked_modules(model, backward=True) else ():
        reason = reason or _compare(model, functools.partial(_scaled, loss, scale), example, 2)
    _shift(model)
    return reason or _compare(model, loss, example, 2)


def _shift(model: nn.Module) -> None:
    """Move all trained weights by a part of their size, the same way each time; rows for padding have no gradient."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), _rows_for_padding_kept(model):
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point() and parameter.layout is torch.strided:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter)
                parameter.add_(_SHIFT * noise * (parameter.abs().mean() + _SHIFT))


@contextlib.contextmanager
def _rows_for_padding_kept(model: nn.Module) -> Iterator[None]:
    tables = [each for each in model.modules() if isinstance(each, (nn.Embedding, nn.EmbeddingBag))]
    kept = [(table.weight, table.padding_idx) for table in tables if table.padding_idx is not None]
    rows = [weight[row].clone() for weight, row in kept]
    yield
    for (weight, row), values in zip(kept, rows, strict=True):
        weight[row] = values


def _scaled(loss: Loss, scale: float, outputs: Any, targets: Any) -> torch.Tensor:
    return loss(outputs, targets) * scale


def _compare(model: nn.Module, loss: Loss, example: Example, which: int) -> str:
    try:
        return _difference(model, loss, cut_example(example, which))
    except Exception as error:
        return f"the program cannot be tried on parts of a batch: {describe(error)}"


def _difference(model: nn.Module, loss: Loss, cut: BatchCut, *, with_gradients: bool = True) -> str:
    inputs, targets = ([part[side] for part in cut.parts] for side in (0, 1))
    with PrecisionWatch() as watch:
        full, drew = _forward(model, cut.whole[0])
    # Where Python's or numpy's generator draws there are no two outputs to compare; the loss can still be checked.
    pieces = split(full, cut.sizes) if drew else [_forward(model, piece)[0] for piece in inputs]
    if not cut.is_padded and not all(are_its_rows(*found, cut.sizes) for found in paired(full, pieces)):
        line = mixing_line(lambda given: _forward(model, given), cut.whole[0], inputs, cut.sizes)
        first = f": they differ first at {line}" if line else ""
        return f"an output of the model depends on the other samples of its batch, not only on its own{first}"
    # Parts first: while they are added up, a weight's gradient is there twice.
    targets = split(cut.whole[1], cut.sizes) if drew else targets
    parts = _backward(model, loss, pieces, targets, cut.sizes, with_gradients)
    whole = _backward(model, loss, [full], [cut.whole[1]], (cut.size,), with_gradients)
    if whole is None or parts is None:
        return ""
    rounding = coarsest([whole.loss, full, *model.parameters()])
    if not close(whole.loss, parts.loss, rounding):
        return not_a_mean(whole.loss, parts.loss, cut.size)
    if rounding > SINGLE and (text := _compare_rows(loss, full, pieces, cut)):
        return text
    return explained(whole, parts, max(ROUNDINGS * rounding, watch.coarsest))


def _compare_rows(loss: Loss, outputs: Any, pieces: list[Any], cut: BatchCut) -> str:
    """Compare the loss of coarse outputs with that of their own rows: equal ones, so single precision tells more."""
    if not all(has_rows(tensor, found, cut.sizes) for tensor, found in paired(outputs, pieces) if tensor.ndim):
        return ""  # only while it trains are outputs taken apart along other dimensions
    if may_list_samples((outputs, cut.whole[1]), cut.size):
        return ""

    def take(samples: list[int]) -> tuple[Any, Any]:
        rows = functools.partial(rows_of, size=cut.size, start=samples[0], stop=samples[-1] + 1)
        return map_tensors(rows, outputs), map_tensors(rows, cut.whole[1])

    with contextlib.suppress(Exception):  # it needs the gradients of outputs, and was compared with those
        return why_unlike_parts(loss, take, [part.tolist() for part in split(torch.arange(cut.size), cut.sizes)])
    return ""


def coarsest(values: Any) -> float:
    """Return the relative rounding of the coarsest type: a loss of fine targets is as exact as the outputs are."""
    fractions = (each for each in tensors_of(values) if each.is_floating_point() or each.is_complex())
    return max((torch.finfo(each.dtype).eps for each in fractions), default=0.0)


def explained(whole: StepOutcome, parts: StepOutcome, precision: float) -> str:
    """Say how gradients differ, and what makes them; empty if only by rounding."""
    text = difference(whole, parts, precision)
    if not text:
        return ""
    return (
        f"added up over chunks, {text}: a hook or a backward function of the program looks at the gradient of a whole "
        "batch, or at how many times it is called"
    )


def _forward(model: nn.Module, inputs: Any) -> tuple[Any, bool]:
    """Return the outputs, and whether random numbers went into them that cannot be held still."""
    before = RandomState()
    with SteadyDraws():
        outputs = try_forward(model, map_tensors(torch.clone, inputs))
    return outputs, before.others_moved()


def _backward(
    model: nn.Module,
    loss: Loss,
    outputs: list[Any],
    targets: list[Any],
    sizes: tuple[int, ...],
    with_gradients: bool,
) -> StepOutcome | None:
    """Add up the loss of chunks, and the gradients if they are wanted, each by its share of the samples.

    None if the loss draws from Python's or numpy's generator.
    """
    before = RandomState()
    with SteadyDraws():
        losses = [loss(output, target) for output, target in zip(outputs, targets, strict=True)]
    if before.others_moved():
        return None
    value = torch.zeros_like(losses[0], requires_grad=False)
    for part, size in zip(losses, sizes, strict=True):
        share = part * (size / sum(sizes))
        if with_gradients:
            # One after another, as chunks are; those of outputs that were computed together share their history.
            share.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        value += share.detach()
    return outcome(value, model)


def quiet(model: nn.Module) -> None:
    """Switch off torch's own dropout and batch statistics, and leave the user's code in training mode."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and module.running_mean is None:
            weight = next(model.parameters())
            module.running_mean = weight.new_zeros(module.num_features)
            module.running_var = weight.new_ones(module.num_features)
            module.track_running_stats = True
        if type(module).__module__.startswith("torch.nn."):
            # Not eval(): that would reach the user's modules inside torch's containers.
            module.training = False
