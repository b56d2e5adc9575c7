"""Rules for matrix products, convolutions and attention."""

from collections.abc import Sequence
from typing import Any

from nfold.capture.proof.rules.calls import Call
from nfold.capture.proof.rules.kinds import SHARED, TOTAL, Kind, SampleRows, Sum, moved, plain, worst
from nfold.capture.proof.rules.pointwise import combined
from nfold.capture.proof.rules.rule_registry import rule

_PAIRS = "compares every sample with every other"


def _product(call: Call, one: Any, other: Any, batch: int) -> Kind:
    """Multiply (batch.., n, k) and (batch.., k, m)."""
    kinds = call.kind_of(one), call.kind_of(other)
    if bad := worst(kinds):
        return bad
    if any(isinstance(kind, Sum) for kind in kinds):
        linear = SHARED in kinds
        return next(kind for kind in kinds if isinstance(kind, Sum)) if linear else combined(call, [one, other])
    left, right = (kind if isinstance(kind, SampleRows) else None for kind in kinds)
    roles = [_role(left, one.ndim, batch, columns=False), _role(right, other.ndim, batch, columns=True)]
    named = [role for role in roles if role is not None]
    if not named:
        return SHARED
    if "inner" in named:
        even = left is not None and right is not None and left.inner == right.inner
        return TOTAL if even and all(role == "inner" for role in named) else call.mixed(_PAIRS)
    if len(set(named)) > 1 or (named[0] == "outer" and len(named) == 2):
        return call.mixed(_PAIRS)
    rows = left or right
    assert rows is not None
    if left and right and left.inner != right.inner:
        return call.unknown()
    dim = rows.dim if named[0] == "batch" or left else len(call.shape) - 1
    return moved(plain(rows), dim)


def _role(rows: SampleRows | None, ndim: int, batch: int, *, columns: bool) -> str | None:
    if rows is None:
        return None
    if rows.dim < batch:
        return "batch"
    return "outer" if (rows.dim == ndim - 1) == columns else "inner"


@rule("mm", "_scaled_mm", "bmm")
def mm(call: Call) -> Kind:
    """(n, k) x (k, m), or (batch, n, k) x (batch, k, m)."""
    return _product(call, call["self"], call["mat2"], call.name == "bmm")


@rule("mv")
def mv(call: Call) -> Kind:
    """(n, k) x (k)."""
    matrix, vector = call.rows("self"), call.kind("vec")
    if bad := worst([call.kind("self"), vector]):
        return bad
    if matrix is None:
        linear = SHARED in (call.kind("self"), vector)
        found = vector if call.kind("self") == SHARED else call.kind("self")
        return found if linear and not isinstance(vector, SampleRows) else call.unknown()
    if vector == SHARED and matrix.dim == 0:
        return plain(matrix)
    return worst([vector]) or (TOTAL if matrix.dim == 1 and isinstance(vector, SampleRows) else call.unknown())


@rule("dot", "vdot")
def dot(call: Call) -> Kind:
    """(k) x (k)."""
    kinds = [call.kind_of(each) for each in call.tensors()]
    if bad := worst(kinds):
        return bad
    rows = [kind for kind in kinds if isinstance(kind, SampleRows)]
    if len(rows) == 2:
        return TOTAL if rows[0].inner == rows[1].inner else call.unknown()
    sums = [kind for kind in kinds if isinstance(kind, Sum)]
    return sums[0] if len(sums) == 1 and SHARED in kinds else combined(call)


@rule("addmm", "baddbmm", "_addmm_activation", "addmv", "addbmm")
def added(call: Call) -> Kind:
    """A product, added to something that is broadcast."""
    if call.name in ("addmv", "addbmm"):
        return call.unknown() if any(call.kind_of(each) != SHARED for each in call.tensors()) else SHARED
    one, other = (call["mat1"], call["mat2"]) if "mat1" in call.arguments else (call["batch1"], call["batch2"])
    product, bias = _product(call, one, other, call.name == "baddbmm"), call.kind("self")
    if bad := worst([product, bias]):
        return bad
    if isinstance(product, SampleRows):
        ndim = len(call.shape)
        if isinstance(bias, SampleRows):
            same = bias.dim - call["self"].ndim == product.dim - ndim and bias.inner == product.inner
            return product if same else call.mixed(_PAIRS)
        return combined(call, [call["self"]]) if isinstance(bias, Sum) else product
    if isinstance(product, Sum):
        return (
            product
            if bias == product or (product.mean and bias == SHARED)
            else call.mixed("adds a sum over the samples")
        )
    return call.mixed("adds a sum over the samples to what is none") if bias == TOTAL else bias


@rule("linear")
def linear(call: Call) -> Kind:
    """(.., k) x (m, k) + (m)."""
    return _leading(call, "input", 1, others=("weight", "bias"))


def _leading(call: Call, name: str, last: int, others: Sequence[str] = ()) -> Kind:
    """Return the kind of a result that has its own dimensions last and all others as they were."""
    kind, rest = call.kind(name), [call.kind(each) for each in others]
    if bad := worst([kind, *rest]):
        return bad
    if any(each != SHARED for each in rest):
        return call.unknown()
    if isinstance(kind, SampleRows):
        if kind.dim < call[name].ndim - last:
            return plain(kind)
        return call.unknown(f"the dimension of the samples is one that torch's {call.name} works on")
    return call.unknown() if isinstance(kind, Sum) else kind


@rule("convolution", "_convolution", "mkldnn_convolution", "convolution_overrideable")
def convolves(call: Call) -> Kind:
    """(n, c, ..) with weights that do not depend on samples."""
    name = "input" if "input" in call.arguments else "self"
    return _leading(call, name, call[name].ndim - 1, others=("weight", "bias"))


@rule("convolution_backward")
def convolves_back(call: Call) -> Kind | Sequence[Kind]:
    """Give the gradient of the input; that of weights is a sum over samples."""
    kinds = [call.kind(name) for name in ("grad_output", "input")]
    if bad := worst(kinds):
        return bad
    if call.kind("weight") != SHARED or not all(isinstance(kind, SampleRows) and kind.dim == 0 for kind in kinds):
        return call.unknown()
    return (plain(kinds[0]), TOTAL, TOTAL) if isinstance(kinds[0], SampleRows) else call.unknown()


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
      "_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps",
      "_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
def attends(call: Call) -> Kind | Sequence[Kind]:
    """(.., heads, length, features): within each sample, if it is not counted by the last two."""
    given = [call[name] for name in ("query", "key", "value")]
    kinds = [call.kind_of(each) for each in given]
    mask = call.get("attn_mask", call.get("attn_bias"))
    if bad := worst([*kinds, call.kind_of(mask)]):
        return bad
    rows = [kind for kind in kinds if isinstance(kind, SampleRows)]
    if not rows:
        return SHARED if call.kind_of(mask) == SHARED else call.unknown()
    ndim = given[0].ndim
    if any(kind.dim >= ndim - 2 for kind in rows):
        return call.mixed("attends from every sample to every other")
    if len({(kind.dim, kind.inner) for kind in rows}) > 1 or len(rows) < 3:
        return call.unknown()
    masked = call.kind_of(mask)
    if isinstance(masked, SampleRows) and (masked.dim - mask.ndim, masked.inner) != (rows[0].dim - ndim, rows[0].inner):
        return call.unknown()
    return [plain(rows[0]) if hasattr(each, "ndim") and each.ndim > rows[0].dim else SHARED for each in call.outputs]


@rule("_cdist_forward", "cdist", "_euclidean_dist")
def distances(call: Call) -> Kind:
    """(.., n, k) and (.., m, k) to (.., n, m)."""
    left, right = call.kind("x1"), call.kind("x2")
    if bad := worst([left, right]):
        return bad
    ndim = len(call.shape)
    if isinstance(left, SampleRows) and isinstance(right, SampleRows):
        same = left.dim < ndim - 2 and (left.dim, left.inner) == (right.dim, right.inner)
        return plain(left) if same else call.mixed(_PAIRS)
    if isinstance(left, SampleRows):
        return plain(left) if left.dim < call["x1"].ndim - 1 else call.unknown()
    if isinstance(right, SampleRows):
        last = right.dim == call["x2"].ndim - 2
        return moved(plain(right), ndim - 1 if last else right.dim) if right.dim < ndim - 1 else call.unknown()
    return SHARED


@rule("_linalg_eigh", "_linalg_svd", "linalg_inv_ex", "linalg_cholesky_ex", "linalg_qr", "_linalg_det",
      "_linalg_slogdet",
      "linalg_matrix_exp", "linalg_lu_factor_ex", "linalg_pinv", "linalg_eig", "inverse", "logdet")  # fmt: skip
def matrices(call: Call) -> Kind:
    """Decompose each matrix."""
    tensor = next(call.tensors())
    kind = call.kind_of(tensor)
    if isinstance(kind, SampleRows) and kind.dim >= tensor.ndim - 2:
        return call.mixed(f"computes {call.name.strip('_')} of a matrix of samples")
    return call.unknown() if isinstance(kind, Sum) else kind


@rule("_linalg_solve_ex", "linalg_solve_triangular", "cholesky_solve", "triangular_solve")
def solves(call: Call) -> Kind:
    """Solve for each matrix."""
    kinds = [(tensor.ndim, call.kind_of(tensor)) for tensor in call.tensors()]
    if bad := worst(kind for _, kind in kinds):
        return bad
    rows = [(ndim, kind) for ndim, kind in kinds if isinstance(kind, SampleRows)]
    fits = all(kind.dim < ndim - 2 for ndim, kind in rows) and len({plain(kind) for _, kind in rows}) == 1
    return plain(rows[0][1]) if fits and len({ndim for ndim, _ in kinds}) == 1 else call.unknown()
