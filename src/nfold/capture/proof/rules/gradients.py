"""Rules for what a gradient is made of, where forward or the loss asks for one: equations of physics, penalties."""

from collections.abc import Sequence

from nfold.capture.proof.rules.calls import Call, real_dim
from nfold.capture.proof.rules.kinds import SHARED, TOTAL, Kind, SampleRows, moved, plain, worst
from nfold.capture.proof.rules.layers import all_on_last
from nfold.capture.proof.rules.rule_registry import rule

_LAST_ONE = "reflection_pad1d_backward replication_pad1d_backward"
_LAST_TWO = (
    "avg_pool2d_backward _adaptive_avg_pool2d_backward adaptive_max_pool2d_backward max_pool2d_with_indices_backward "
    "upsample_nearest2d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
    "_upsample_nearest_exact2d_backward reflection_pad2d_backward replication_pad2d_backward"
)
_LAST_THREE = (
    "avg_pool3d_backward _adaptive_avg_pool3d_backward adaptive_max_pool3d_backward max_pool3d_with_indices_backward "
    "upsample_nearest3d_backward upsample_trilinear3d_backward reflection_pad3d_backward replication_pad3d_backward"
)
_BY_PLACE = "a gradient goes to some samples of a batch by their place in it"


@rule("slice_backward")
def slices_back(call: Call) -> Kind:
    """Put a gradient where its elements were cut from, between zeros."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    dim, multiple = real_dim(call["dim"], tensor.ndim), call.samples.multiple
    if dim != kind.dim:
        return plain(kind)
    if multiple(call["input_sizes"][dim]) == multiple(tensor.shape[dim]) and call["step"] == 1:
        return kind
    return call.unknown(_BY_PLACE)


@rule("select_backward")
def selects_back(call: Call) -> Kind:
    """Put a gradient where its elements were taken from, between zeros."""
    tensor, kind = call.source()
    if not isinstance(kind, SampleRows):
        return kind
    dim = real_dim(call["dim"], tensor.ndim + 1)
    return moved(plain(kind), kind.dim + (dim <= kind.dim))


@rule("glu_backward")
def gates_back(call: Call) -> Kind:
    """Compute within one dimension, in which the result has twice as many elements."""
    kinds = [call.kind_of(each) for each in call.tensors()]
    if bad := worst(kinds):
        return bad
    first = kinds[0]
    dim = real_dim(call["dim"], len(call.shape))
    if not isinstance(first, SampleRows) or first.dim == dim:
        return call.unknown()
    rows = [kind for kind in kinds if isinstance(kind, SampleRows) and plain(kind) == plain(first)]
    return plain(first) if len(rows) == len(kinds) else call.unknown()


all_on_last(_LAST_ONE, _LAST_TWO, _LAST_THREE)


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def layer_norm_back(call: Call) -> Kind | Sequence[Kind]:
    """Give the gradient of the input; that of the weights is a sum over samples."""
    kind = call.kind("input")
    if bad := worst([call.kind_of(each) for each in call.tensors()]):
        return bad
    if not isinstance(kind, SampleRows) or kind.dim >= call["input"].ndim - len(call["normalized_shape"]):
        return call.unknown()
    gradient, weights = call.kind("grad_out"), [call.kind(name) for name in ("weight", "bias")]
    fits = isinstance(gradient, SampleRows) and (gradient.dim, gradient.inner) == (kind.dim, kind.inner)
    return [plain(kind), *[TOTAL] * (len(call.outputs) - 1)] if fits and set(weights) == {SHARED} else call.unknown()


@rule("embedding_dense_backward")
def embeds_back(call: Call) -> Kind:
    """Add to each row of a table what the samples that looked it up give."""
    gradient, indices = call.kind("grad_output"), call.kind("indices")
    if bad := worst([gradient, indices]):
        return bad
    if not isinstance(gradient, SampleRows) or not isinstance(indices, SampleRows) or call["scale_grad_by_freq"]:
        return call.unknown()
    return TOTAL if (gradient.dim, gradient.inner) == (indices.dim, indices.inner) else call.unknown()
