"""Rules for operators that move elements: views, permutations, slices, joins, repetitions."""

from collections.abc import Sequence
from typing import Any

import torch

from nfold.capture.proof.rules.calls import Call, all_dims, real_dim
from nfold.capture.proof.rules.counting import expression_of
from nfold.capture.proof.rules.kinds import SHARED, Kind, SampleRows, Sum, moved, plain, worst
from nfold.capture.proof.rules.rule_registry import rule

_BY_PLACE = "takes samples by their place in the batch"


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy")
def views(call: Call) -> Kind:
    """Find the samples again by how many elements lie behind one of them."""
    tensor, kind = call.source()
    if "dtype" in call.arguments and kind != SHARED:
        return kind if isinstance(kind, SampleRows) and call.result.shape == tensor.shape else call.unknown()
    if not isinstance(kind, SampleRows):
        return kind
    behind = kind.inner
    for size in tensor.shape[kind.dim + 1 :]:
        behind = behind * int(size)
    after = 1
    for dim in reversed(range(len(call.shape))):
        times = call.samples.multiple(call.shape[dim])
        if times:
            fits = times > 0 and behind % after == 0 and times % (behind // after) == 0
            return moved(kind, dim, behind // after) if fits else call.unknown("a view splits the samples of a batch")
        after *= int(call.shape[dim])
    return call.unknown()


@rule("t", "transpose", "transpose_", "swapaxes", "permute", "movedim", "numpy_T", "mT", "adjoint")
def permutes(call: Call) -> Kind:
    """Move the dimension."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    order = list(range(tensor.ndim))
    if call.name == "permute":
        order = all_dims(call["dims"], tensor.ndim)
    elif call.name == "t":
        order.reverse()
    elif call.name == "transpose":
        one, other = real_dim(call["dim0"], tensor.ndim), real_dim(call["dim1"], tensor.ndim)
        order[one], order[other] = order[other], order[one]
    else:
        return call.unknown()
    return moved(kind, order.index(kind.dim))


@rule("unsqueeze")
def unsqueezes(call: Call) -> Kind:
    """Count one dimension more."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    return moved(kind, kind.dim + (real_dim(call["dim"], tensor.ndim + 1) <= kind.dim))


@rule("squeeze")
def squeezes(call: Call) -> Kind:
    """Count fewer dimensions."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    named = call.get("dim")
    dims = all_dims(named, tensor.ndim) if named is not None else range(tensor.ndim)
    gone = [dim for dim in dims if not call.samples.multiple(tensor.shape[dim]) and int(tensor.shape[dim]) == 1]
    return moved(kind, kind.dim - sum(dim < kind.dim for dim in gone))


@rule("expand", "broadcast_to", "expand_as", "expand_copy")
def expands(call: Call) -> Kind:
    """Repeat: where it is as often as there are samples, each gets the same."""
    tensor, kind = call.source()
    added = len(call.shape) - tensor.ndim
    if isinstance(kind, SampleRows):
        grown = [dim for dim, size in enumerate(call.shape) if call.samples.multiple(size) and dim != kind.dim + added]
        return call.mixed("compares every sample with every other") if grown else moved(kind, kind.dim + added)
    if isinstance(kind, Sum) and any(call.samples.multiple(size) for size in call.shape):
        return call.mixed("gives every sample a sum or a mean over all samples")
    return uniform(call, kind)


def uniform(call: Call, kind: Kind) -> Kind:
    """Return the kind of a result that is the same for every sample, if samples are counted in it at all."""
    if kind != SHARED:
        return kind
    dims = [(dim, times) for dim, size in enumerate(call.shape) if (times := call.samples.multiple(size))]
    if not dims:
        return SHARED
    if len(dims) > 1 or dims[0][1] < 0:
        return call.unknown("a tensor is built whose shape is no multiple of the number of samples")
    return SampleRows(dim=dims[0][0], inner=dims[0][1], uniform=True)


@rule("repeat", "tile")
def repeats(call: Call) -> Kind:
    """Repeat the whole along dimensions."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return expands(call)
    added = len(call.shape) - tensor.ndim
    grown = [dim for dim, times in enumerate(call["repeats"]) if call.samples.multiple(times)]
    if grown:
        return call.mixed("compares every sample with every other")
    return moved(kind, kind.dim + added)


@rule("select")
def selects(call: Call) -> Kind:
    """Take one entry of a dimension."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    dim = real_dim(call["dim"], tensor.ndim)
    if dim == kind.dim:
        whole = kind.uniform and kind.inner == call.samples.multiple(tensor.shape[dim]) == 1
        return SHARED if whole else call.mixed(_BY_PLACE)
    return moved(kind, kind.dim - (dim < kind.dim))


@rule("slice", "narrow")
def slices(call: Call) -> Kind:
    """Take some entries of a dimension: of that of the samples all, or whole parts that were joined."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows) or real_dim(call["dim"], tensor.ndim) != kind.dim:
        return kind
    times = call.samples.multiple(call.shape[kind.dim])
    before = call.samples.multiple(tensor.shape[kind.dim])
    if times == before and call.get("step", 1) == 1:
        return kind
    begin = call.get("start") or 0
    whole = kind.inner == 1 and call.get("step", 1) == 1 and times > 0 and call.samples.parts(begin)
    if whole and whole[1] == 0:
        return kind
    if kind.uniform and kind.inner == before == 1 and times == 0:
        return SHARED
    return call.mixed(_BY_PLACE)


@rule("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "tensor_split")
def splits(call: Call) -> Kind | Sequence[Kind]:
    """Take apart along a dimension."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    dim = real_dim(call.get("dim") or 0, tensor.ndim)
    if dim != kind.dim:
        return moved(kind, kind.dim - (call.name == "unbind" and dim < kind.dim))
    parts = [call.samples.multiple(part.shape[dim]) if part.ndim == tensor.ndim else 0 for part in call.outputs]
    if kind.inner == 1 and all(times > 0 for times in parts):
        return kind
    return call.mixed(_BY_PLACE)


@rule("cat", "concat", "stack", "hstack", "vstack")
def joins(call: Call) -> Kind:
    """Join tensors: all along the samples, or all with the samples in the same place."""
    tensors = [each for each in call["tensors"] if not (call.name == "cat" and each.ndim == 1 and _is_empty(each))]
    kinds = [call.kind_of(each) for each in tensors]
    if bad := worst(kinds):
        return bad
    sums = [kind for kind in kinds if isinstance(kind, Sum)]
    if sums:
        linear = len(set(sums)) == 1 and all(kind in (sums[0], SHARED if sums[0].mean else sums[0]) for kind in kinds)
        return sums[0] if linear else call.mixed("joins a sum over the samples with what is none")
    rows = [kind for kind in kinds if isinstance(kind, SampleRows)]
    if not rows:
        return SHARED
    if len({(kind.dim, kind.inner) for kind in rows}) > 1 or len(rows) < len(kinds):
        return call.unknown("tensors are joined that count the samples in different places, or not at all")
    first = rows[0] if all(kind == rows[0] for kind in rows) and not rows[0].index else plain(rows[0])
    dim = real_dim(call["dim"], len(call.shape))
    if call.name == "stack":
        return moved(first, first.dim + (dim <= first.dim))
    if dim == first.dim and (first.inner > 1 or first.index):
        return call.unknown("tensors of several rows a sample are joined along them")
    return plain(first) if dim == first.dim and len(rows) > 1 else first


def _is_empty(tensor: torch.Tensor) -> bool:
    return not isinstance(tensor.shape[0], torch.SymInt) and tensor.shape[0] == 0


@rule("flip", "roll", "rot90", "fft_fftshift", "_fft_r2c", "_fft_c2c", "_fft_c2r")
def turns(call: Call) -> Kind:
    """Turn or transform along dimensions."""
    return along(call, call["dims" if "dims" in call.arguments else "dim"])


def along(call: Call, dims: Any, *, keeps_rank: bool = True, how: str = "") -> Kind:
    """Return the kind of a result that mixes entries along some dimensions only.

    Args:
        call: of an operator of one tensor that can mix samples.
        dims: along which it does; none means all of them.
        keeps_rank: whether these dimensions are still there.
        how: what it does, where it does so to samples.
    """
    tensor, kind = call.source()
    if isinstance(kind, Sum):
        return call.mixed(f"computes {call.name} of a sum or a mean over the samples")
    if not isinstance(kind, SampleRows):
        return kind
    found = all_dims(dims, tensor.ndim)
    if kind.dim in found:
        return call.mixed(how or f"computes {call.name} over the samples")
    return moved(plain(kind), kind.dim - (0 if keeps_rank else sum(dim < kind.dim for dim in found)))


@rule("constant_pad_nd")
def pads(call: Call) -> Kind:
    """Pad: the last dimensions come first."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return call.unknown() if isinstance(kind, Sum) else kind
    pad, place = list(call["pad"]), tensor.ndim - 1 - kind.dim
    touched = any(not _is_zero(each) for each in pad[2 * place : 2 * place + 2])
    return call.unknown("a dimension that counts samples is padded") if touched else plain(kind)


def _is_zero(number: Any) -> bool:
    return not isinstance(number, torch.SymInt) and number == 0


@rule("tril", "triu")
def triangles(call: Call) -> Kind:
    """Leave out a triangle of each matrix."""
    tensor, kind = call.source()
    if isinstance(kind, SampleRows) and kind.dim >= tensor.ndim - 2:
        return call.mixed("compares every sample with every other")
    return kind


@rule("diagonal", "diagonal_copy")
def diagonals(call: Call) -> Kind:
    """Take a diagonal of two dimensions."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    dims = [real_dim(call[name], tensor.ndim) for name in ("dim1", "dim2")]
    return call.unknown() if kind.dim in dims else moved(kind, kind.dim - sum(dim < kind.dim for dim in dims))


@rule("unfold")
def windows(call: Call) -> Kind:
    """Cut windows out of a dimension."""
    tensor, kind = call.source()
    is_along = isinstance(kind, SampleRows) and real_dim(call["dimension"], tensor.ndim) == kind.dim
    return call.mixed("cuts windows that hold several samples") if is_along else kind


@rule("as_strided", "as_strided_copy")
def strides(call: Call) -> Kind:
    """Lay out anew: the same elements in the same places are known, anything else is not."""
    tensor, kind = call.source()
    if kind == SHARED:
        return uniform(call, kind)
    places = [
        [
            (expression_of(size), expression_of(step) if size != 1 else 0)
            for size, step in zip(each.shape, steps, strict=True)
        ]
        for each, steps in ((tensor, tensor.stride()), (call.result, call["stride"]))
    ]
    return kind if places[0] == places[1] and not call.get("storage_offset") else call.unknown()
