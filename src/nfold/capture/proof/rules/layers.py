"""Rules for layers: normalisation, pooling, resampling, recurrent ones; and for losses that reduce by themselves."""

import functools
from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from nfold.capture.proof.rules.calls import Call
from nfold.capture.proof.rules.kinds import MEAN, SHARED, TOTAL, Kind, Mixed, SampleRows, Sum, plain, worst
from nfold.capture.proof.rules.pointwise import combined
from nfold.capture.proof.rules.rule_registry import rule

_MEAN = 1
"""Of torch's `reduction`: 0 none, 1 mean, 2 sum."""
STATISTICS = Mixed(how="uses the statistics of a batch norm")


def last(call: Call, count: int) -> Kind:
    """Return the kind of what is computed within the last dimensions of one tensor, with shared settings."""
    tensor, kind = call.source()
    kinds = [call.kind_of(each) for each in call.tensors()]
    if bad := worst(kinds):
        return bad
    if any(isinstance(each, Sum) for each in kinds):
        return call.mixed(f"computes {call.name.strip('_')} of a sum or a mean over the samples")
    others = [call.kind_of(each) for each in call.tensors() if each is not tensor]
    if any(each not in (SHARED, kind, plain(kind) if isinstance(kind, SampleRows) else kind) for each in others):
        return call.unknown()
    if not isinstance(kind, SampleRows):
        return SHARED if all(each == SHARED for each in others) else call.unknown()
    if kind.dim >= tensor.ndim - count:
        return call.unknown(f"torch's {call.name.strip('_')} works on the dimension that counts samples")
    return plain(kind)


@rule("native_layer_norm", "_fused_rms_norm", "rms_norm")
def layer_norm(call: Call) -> Kind | Sequence[Kind]:
    """Normalise within the last dimensions."""
    kind = last(call, len(call["normalized_shape"]))
    return (
        [
            kind if isinstance(each, torch.Tensor) and isinstance(kind, SampleRows) and each.ndim > kind.dim else SHARED
            for each in call.outputs
        ]
        if isinstance(kind, SampleRows)
        else kind
    )


@rule("native_group_norm")
def group_norm(call: Call) -> Kind:
    """(n, c, ..): within groups of channels."""
    kind = last(call, call["input"].ndim - 1)
    return kind if not isinstance(kind, SampleRows) or kind.inner == 1 or kind.dim == 0 else call.unknown()


@rule("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "_batch_norm_no_update",
      "cudnn_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
      "miopen_batch_norm", "batch_norm_with_update", "batch_norm_with_update_functional")  # fmt: skip
def batch_norm(call: Call) -> Kind | Sequence[Kind]:
    """Normalise over the batch: statistics of its chunks are part of the program under every plan."""
    kind, settings = call.kind("input"), [call.kind(name) for name in ("weight", "bias")]
    if not call.get("training", True):
        settings += [call.kind(name) for name in ("running_mean", "running_var")]
    if bad := worst([kind, *settings]):
        return bad
    if not isinstance(kind, SampleRows) or any(isinstance(each, Sum) for each in settings):
        return call.unknown() if kind != SHARED or any(each != SHARED for each in settings) else SHARED
    if kind.dim not in (0, 1):
        return call.unknown("a batch norm's channels or places count samples")
    statistics: Kind = plain(SampleRows(dim=0, inner=kind.inner)) if kind.dim == 1 else STATISTICS
    return [plain(kind), *(statistics for _ in call.outputs[1:])]


_LAST_TWO = (
    "avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d max_pool2d_with_indices upsample_nearest2d "
    "upsample_bilinear2d upsample_bicubic2d _upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "reflection_pad2d replication_pad2d max_unpool2d fractional_max_pool2d max_pool2d mkldnn_max_pool2d "
    "mkldnn_adaptive_avg_pool2d adaptive_avg_pool2d"
)
_LAST_THREE = (
    "avg_pool3d _adaptive_avg_pool3d adaptive_max_pool3d max_pool3d_with_indices upsample_nearest3d "
    "upsample_trilinear3d reflection_pad3d replication_pad3d max_pool3d im2col col2im pixel_shuffle "
    "pixel_unshuffle"
)
_LAST_ONE = (
    "avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d max_pool1d upsample_linear1d upsample_nearest1d "
    "reflection_pad1d replication_pad1d"
)


def all_on_last(*names: str) -> None:
    """Let operators work on the last dimension, or on the last two, or three, by the place of their names."""
    for count, each in enumerate(names, 1):
        rule(*each.split())(functools.partial(last, count=count))


all_on_last(_LAST_ONE, _LAST_TWO, _LAST_THREE)


@rule("grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator", "deform_conv2d")
def within_first(call: Call) -> Kind:
    """(n, ..) with (n, ..): each with its own."""
    kinds = [call.kind_of(each) for each in call.tensors()]
    fits = all(isinstance(kind, SampleRows) and kind.dim == 0 and kind.inner == 1 for kind in kinds)
    return worst(kinds) or (SampleRows(dim=0) if fits else call.unknown())


@rule("mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def recurrent(call: Call) -> Kind | Sequence[Kind]:
    """(time, n, features), or a cell's (n, features): each sample has its own state."""
    kinds = [call.kind_of(each) for each in call.tensors()]
    if bad := worst(kinds):
        return bad
    rows = [(tensor, kind) for tensor, kind in zip(call.tensors(), kinds, strict=True) if isinstance(kind, SampleRows)]
    if any(isinstance(kind, Sum) for kind in kinds) or any(kind.dim != tensor.ndim - 2 for tensor, kind in rows):
        return call.unknown()
    return [
        SampleRows(dim=each.ndim - 2) if isinstance(each, torch.Tensor) and each.ndim >= 2 else SHARED
        for each in call.outputs
    ]


@rule("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss",
      "binary_cross_entropy_with_logits", "l1_loss", "kl_div")  # fmt: skip
def element_losses(call: Call) -> Kind:
    """Compare element by element, then perhaps reduce."""
    values = [call[name] for name in ("self", "target", "weight", "pos_weight") if call.get(name) is not None]
    return reduced(call, combined(call, values))


def reduced(call: Call, kind: Kind) -> Kind:
    """Return the kind of a loss whose terms are of a kind."""
    reduction = call.get("reduction", _MEAN)
    if reduction == 0 or not isinstance(kind, SampleRows):
        return kind
    return MEAN if reduction == _MEAN else TOTAL


@rule("multi_margin_loss", "multilabel_margin_loss_forward")
def margin_losses(call: Call) -> Kind | Sequence[Kind]:
    """(n, classes) and (n) or (n, classes)."""
    kinds = [call.kind("self"), call.kind("target"), call.kind("weight")]
    if bad := worst(kinds):
        return bad
    rows = [kind for kind in kinds[:2] if isinstance(kind, SampleRows)]
    if len(rows) < 2 or kinds[2] != SHARED or any(kind.dim for kind in rows) or rows[0].inner != rows[1].inner:
        return call.unknown()
    return reduced(call, plain(rows[0]))


@rule("_ctc_loss")
def ctc_loss(call: Call) -> Kind | Sequence[Kind]:
    """(time, n, classes) to (n)."""
    scores, kinds = call.kind("log_probs"), [call.kind_of(each) for each in call.tensors()]
    if bad := worst(kinds):
        return bad
    targets = call.kind("targets")
    fits = (
        isinstance(scores, SampleRows)
        and scores.dim == 1
        and isinstance(targets, SampleRows)
        and call["targets"].ndim == 2
    )
    return (
        [SampleRows(dim=0), SampleRows(dim=0)]
        if fits
        else call.unknown("the targets of all samples are joined into one")
    )


def _is_even(weight: torch.Tensor) -> bool:
    """Tell whether all class weights are equal."""
    with _disable_current_modes():
        return bool((weight == weight.flatten()[0]).all())


@rule("nll_loss_forward", "nll_loss2d_forward")
def likelihood(call: Call) -> Kind | Sequence[Kind]:
    """(n, classes, ..) and (n, ..): a mean over the targets that count."""
    scores, targets, weight = call.kind("self"), call.kind("target"), call.kind("weight")
    if bad := worst([scores, targets, weight]):
        return bad
    if not (isinstance(scores, SampleRows) and isinstance(targets, SampleRows)):
        return call.unknown() if scores != SHARED or targets != SHARED else SHARED
    if scores.dim or targets.dim or scores.inner != targets.inner or weight != SHARED or targets.index:
        if targets.index:
            return call.mixed("takes a sample's place in the batch for its label")
        return call.unknown()
    if call["reduction"] != _MEAN:
        return [reduced(call, plain(scores)), TOTAL]
    if isinstance(call["weight"], FakeTensor):
        return call.unknown("the loss makes its class weights anew")
    if call["weight"] is not None and not _is_even(call["weight"]):
        return call.mixed("divides by the sum of the class weights (weight=) of the samples in the batch")
    target, ignored = call["target"], call["ignore_index"]
    counted = call.again(lambda: (target != ignored).sum())
    why = f"divides by the number of targets that are not {ignored} (ignore_index)"
    return [MEAN, TOTAL] if targets.uniform or call.proportional(counted, why) else call.unknown(f"the loss {why}")
