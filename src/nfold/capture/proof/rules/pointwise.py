"""Rules for operators that compute each element from those in its place: sums, products, activations, comparisons.

Sums over samples stay such under what is linear: added, scaled, divided by what does not depend on the samples.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from nfold.capture.program.users_line import users_line
from nfold.capture.proof.rules.calls import ONE_OVER, Call, flat
from nfold.capture.proof.rules.kinds import MEAN, SHARED, TOTAL, Kind, SampleRows, Shared, Sum, plain, worst
from nfold.capture.proof.rules.rule_registry import rule

_KEEPS = "alias clone contiguous detach lift_fresh lift_fresh_copy positive conj _conj resolve_conj resolve_neg"
_DRAWS = "bernoulli normal uniform exponential cauchy log_normal geometric random native_dropout rrelu_with_noise"
_MORE = (
    "masked_fill dropout gelu softplus hardswish hardtanh log_sigmoid_forward isfinite isinf "
    "nan_to_num fake_quantize_per_tensor_affine_cachemask polar complex copysign view_as_real "
    "view_as_complex real imag _prelu_kernel prelu logaddexp where addcmul addcdiv lerp clamp_min clamp_max "
    "softplus_backward leaky_relu_backward mish_backward rrelu_with_noise_backward soft_margin_loss_backward "
    "mse_loss_backward smooth_l1_loss_backward huber_loss_backward "
    "binary_cross_entropy_backward hardswish_backward hardsigmoid_backward elu_backward log_sigmoid_backward "
    "hardtanh_backward"
)
"""Operators that torch does not mark as pointwise, or not all of whose forms."""


def combined(call: Call, values: Iterable[Any] | None = None) -> Kind:
    """Return the kind of what is computed element by element from values that are broadcast together."""
    given = [each for each in (call.values if values is None else flat(values)) if _counts(each)]
    kinds = [call.kind_of(each) for each in given]
    kinds = [call.mixed("computes with the number of samples") if each == ONE_OVER else each for each in kinds]
    if bad := worst(kinds):
        return bad
    if any(isinstance(kind, Sum) for kind in kinds):
        return _no_longer_linear(call, kinds)
    return _aligned(
        call, [(each, kind) for each, kind in zip(given, kinds, strict=True) if isinstance(kind, SampleRows)]
    )


def _counts(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def _no_longer_linear(call: Call, kinds: Sequence[Kind]) -> Kind:
    sums = [kind for kind in kinds if isinstance(kind, Sum)]
    what = "a mean" if all(each.mean for each in sums) else "a sum"
    if any(isinstance(kind, SampleRows) for kind in kinds):
        return call.mixed(f"computes each sample with {what} over the samples")
    return call.mixed(f"computes {_PAST.get(call.name, call.name)} of {what} over the samples")


_PAST = {"mul": "a product", "div": "a quotient", "pow": "a power", "sqrt": "a square root", "log": "a logarithm"}


def _aligned(call: Call, rows: Sequence[tuple[torch.Tensor, SampleRows]]) -> Kind:
    if not rows:
        return SHARED
    places = {(kind.dim - tensor.ndim, kind.inner) for tensor, kind in rows}
    if len({dim for dim, _ in places}) > 1:
        return call.mixed("compares every sample with every other")
    if len(places) > 1:
        return call.unknown()
    if any(kind.index for _, kind in rows):
        return call.unknown("a number is computed from a sample's place in its batch")
    ((dim, inner),) = places
    ndim = max((tensor.ndim for tensor in call.tensors()), default=0)
    return SampleRows(dim=dim + ndim, inner=inner, uniform=all(kind.uniform for _, kind in rows))


@rule(*_MORE.split())
def pointwise(call: Call) -> Kind:
    """Compute element by element."""
    return combined(call)


@rule(*_DRAWS.split())
def draws(call: Call) -> Kind:
    """Draw for each element: every chunk has random numbers of its own."""
    kind = combined(call)
    return plain(kind) if isinstance(kind, SampleRows) else kind


@rule(*_KEEPS.split())
def keeps(call: Call) -> Kind:
    """Keep what there is."""
    return call.kind_of(next(call.tensors()))


@rule("bucketize", "searchsorted")
def looks_up(call: Call) -> Kind:
    """Place numbers between boundaries, which must be the same for all samples."""
    name = "boundaries" if "boundaries" in call.arguments else "sorted_sequence"
    if call.kind(name) != SHARED or call[name].ndim != 1:
        return worst([call.kind_of(each) for each in call.tensors()]) or call.unknown()
    return combined(call)


@rule("_to_copy", "copy", "_conj_physical", "neg", "real_neg")
def keeps_or_broadcasts(call: Call) -> Kind:
    """Keep sums as well as rows."""
    kinds = [call.kind_of(each) for each in call.tensors()]
    source = kinds[-1]  # of copy, what is copied
    if isinstance(source, Sum):
        fine = all(each.is_floating_point() for each in call.outputs)
        return source if fine else call.mixed("rounds a sum or a mean over the samples")
    if isinstance(source, SampleRows) and len(kinds) == 1:
        return source
    if call.name == "copy" and isinstance(source, SampleRows):
        found = combined(call, [call["self"], call["src"]] if isinstance(kinds[0], SampleRows) else [call["src"]])
        return plain(found) if isinstance(found, SampleRows) else found
    return combined(call)


@rule("add", "sub", "rsub")
def adds(call: Call) -> Kind:
    """Add sums of the same sort; a constant is the mean of itself."""
    one, other, alpha = call.kind("self"), call.kind("other"), call.kind_of(call.get("alpha"))
    sums = [kind for kind in (one, other) if isinstance(kind, Sum)]
    rest = [kind for kind in (one, other) if not isinstance(kind, Sum)]
    if not sums or alpha != SHARED:
        return combined(call)
    if all(kind == MEAN for kind in sums) and all(isinstance(kind, Shared) for kind in rest):
        return MEAN
    if all(kind == TOTAL for kind in sums) and not rest:
        return TOTAL
    if all(isinstance(kind, (Shared, Sum)) for kind in (one, other)):
        return call.mixed("adds a sum over the samples to what is none")
    return combined(call)


@rule("mul")
def multiplies(call: Call) -> Kind:
    """Scale a sum."""
    return _scaled(call, call.kind("self"), call.kind("other")) or combined(call)


@rule("div")
def divides(call: Call) -> Kind:
    """Scale a sum; one divided by the number of samples is a mean."""
    one, other = call.kind("self"), call.kind("other")
    if call.get("rounding_mode"):
        return combined(call)
    if isinstance(one, Sum) and other == SHARED:
        return one
    if one == TOTAL and (_is_count(call, call["other"]) or _is_even(call)):
        return MEAN
    return combined(call)


def _scaled(call: Call, one: Kind, other: Kind) -> Kind | None:
    for kind, factor, value in ((one, other, call["other"]), (other, one, call["self"])):
        if isinstance(kind, Sum) and factor == SHARED:
            return kind
        if kind == TOTAL and factor == ONE_OVER:
            return MEAN
        if kind == MEAN and _is_count(call, value):
            return TOTAL
    return None


def _is_even(call: Call) -> bool:
    why = f"divides by what is left of the samples in a batch ({users_line()})"
    return call.proportional(call["other"], why)


def _is_count(call: Call, value: Any) -> bool:
    """Tell whether a value is a multiple of the number of samples, and nothing else."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return call.kind_of(value) == TOTAL
    return False
