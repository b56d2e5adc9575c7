"""Holds every rule to what is true of all operators, so that a rule that forgets something proves nothing."""

from typing import Any

import torch

from nfold.capture.proof.rules.calls import Call
from nfold.capture.proof.rules.counting import symbols_of
from nfold.capture.proof.rules.kinds import SHARED, Kind, SampleRows, Sum, Unknown, worst

_VIEWS = (
    "view _unsafe_view reshape _reshape_alias expand broadcast_to repeat slice narrow split split_with_sizes as_strided"
)
_MAKES = (
    "zeros ones empty full new_zeros new_ones new_empty new_full full_like fill scalar_tensor rand randn randint arange"
)
_MORE = "empty_strided new_empty_strided randperm mul div add sub rsub native_group_norm normal_functional unsafe_split"
_BACK = "slice_backward select_backward"
_SIZED = frozenset(f"{_VIEWS} {_MAKES} {_MORE} {_BACK}".split())
"""Operators whose rules look at the number of samples among their arguments."""
_PLACES = "t transpose permute unsqueeze squeeze select index index_put nll_loss_forward _embedding_bag"
_KEEP = "_embedding_bag_forward_only alias clone contiguous detach lift_fresh _to_copy copy"
_PLACED = frozenset(f"{_VIEWS} {_PLACES} {_KEEP}".split())
"""Operators whose rules know what to do with a sample's place in its batch."""
_LIKE = "zeros_like ones_like empty_like rand_like randn_like new_zeros new_ones new_empty new_full full_like"
_BLIND = frozenset(f"{_LIKE} _assert_async _assert_tensor_metadata".split())
"""Operators that look at shapes alone."""


def unforeseen(call: Call) -> Unknown | None:
    """Return the argument of a call that its rule would not look at, as an Unknown; None: there is none."""
    if any(_has_place(call.kind_of(tensor)) for tensor in call.tensors()) and call.name not in _PLACED:
        return call.unknown("something is computed from a sample's place in its batch")
    sized = any(call.samples.symbol in symbols_of(value) for value in call.values)
    if sized and call.name not in _SIZED and not call.is_pointwise:
        return call.unknown(f"torch's {call.name} is given the number of samples")
    return None


def guarded(call: Call, kind: Kind, output: Any) -> Kind:
    """Return the kind that a rule gave a result, or a worse one where arguments or the result's shape contradict it."""
    if not isinstance(output, torch.Tensor) or worst([kind]) is not None:
        return kind
    if call.name not in _BLIND and not call.is_statistical:
        given = [call.kind_of(tensor) for tensor in call.tensors()]
        if (bad := worst(given)) is not None:
            return bad
        if kind == SHARED and any(not _is_alike(each) for each in given):
            return call.unknown()
        if isinstance(kind, SampleRows) and any(isinstance(each, Sum) for each in given):
            return call.unknown("samples are computed with a sum or a mean over all of them")
    return (
        kind if _fits(call, kind, output) else call.unknown("what is the same for all is cut to the size of the batch")
    )


def _fits(call: Call, kind: Kind, output: torch.Tensor) -> bool:
    """Tell whether a shape counts samples just where a kind says."""
    counted = {dim: call.samples.multiple(size) for dim, size in enumerate(output.shape)}
    dims = [dim for dim, times in counted.items() if times]
    if isinstance(kind, SampleRows):
        return dims == [kind.dim] and counted[kind.dim] > 0 and counted[kind.dim] % kind.inner == 0
    return not dims


def _has_place(kind: Kind) -> bool:
    return isinstance(kind, SampleRows) and kind.index != 0


def _is_alike(kind: Kind) -> bool:
    return kind == SHARED or (isinstance(kind, SampleRows) and kind.uniform)
