"""Rules for operators that reduce or order along dimensions."""

from collections.abc import Sequence

from nfold.capture.program.users_line import users_call
from nfold.capture.proof.rules.calls import Call, all_dims
from nfold.capture.proof.rules.kinds import MEAN, SHARED, TOTAL, Kind, SampleRows, Sum, moved, plain
from nfold.capture.proof.rules.pointwise import combined
from nfold.capture.proof.rules.rule_registry import rule
from nfold.capture.proof.rules.views import along

_NAMES = {
    "amax": "a maximum",
    "amin": "a minimum",
    "max": "a maximum",
    "min": "a minimum",
    "aminmax": "a maximum and a minimum",
    "std": "a standard deviation",
    "std_mean": "a standard deviation",
    "var": "a variance",
    "var_mean": "a variance",
    "linalg_vector_norm": "a norm",
    "norm": "a norm",
    "prod": "a product",
    "logsumexp": "a logarithm of a sum",
    "argmax": "a maximum",
    "argmin": "a minimum",
    "median": "a median",
    "nanmedian": "a median",
    "mode": "a mode",
    "kthvalue": "the k-th value",
    "nansum": "a sum of what is a number",
}
_SORTING = ("quantile", "nanquantile", "argsort", "msort")
"""Functions that torch makes of a sort."""
_SAME_OF_EQUALS = ("amax", "amin", "max", "min", "any", "all", "median")
"""What these give of equal rows is such a row."""


@rule("sum", "mean")
def adds_up(call: Call) -> Kind:
    """Sum or average: over samples this is what a loss may do."""
    tensor = call["self"]
    kind, dims = call.kind("self"), all_dims(call.get("dim"), tensor.ndim)
    if isinstance(kind, Sum):
        return kind
    if not isinstance(kind, SampleRows):
        return kind
    if kind.index:
        return call.unknown("a number is computed from a sample's place in its batch")
    if kind.dim in dims:
        return (SHARED if kind.uniform else MEAN) if call.name == "mean" else TOTAL
    return moved(kind, kind.dim - (0 if call.get("keepdim") else sum(dim < kind.dim for dim in dims)))


@rule(*_NAMES, "any", "all", "count_nonzero")
def reduces(call: Call) -> Kind:
    """Reduce otherwise; a maximum may also be one of two tensors, element by element."""
    if "other" in call.arguments:
        return combined(call)
    kind = call.kind("self") if "self" in call.arguments else call.kind("input")
    dims = call.get("dim")
    if isinstance(kind, SampleRows) and kind.uniform and kind.inner == 1 and call.name in _SAME_OF_EQUALS:
        tensor = call["self"]
        if kind.dim in all_dims(dims, tensor.ndim):
            return SHARED
    how = f"takes {_NAMES.get(call.name, call.name)} over the samples"
    return along(call, dims, keeps_rank=bool(call.get("keepdim")), how=how)


@rule("softmax", "_softmax", "_safe_softmax", "log_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp",
      "cummax",
      "cummin", "sort", "argsort", "topk", "glu", "_cummax_helper", "fft_fft")  # fmt: skip
def orders(call: Call) -> Kind | Sequence[Kind]:
    """Normalise, accumulate or order along one dimension."""
    dim = call.get("dim", -1)
    name = called if call.name == "sort" and (called := users_call()) in _SORTING else call.name.strip("_")
    return along(call, [dim], how=f"computes {name} over the samples")


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_back(call: Call) -> Kind:
    """Normalise back along one dimension."""
    kind = combined(call, [call["grad_output"], call["output"]])
    if not isinstance(kind, SampleRows):
        return kind
    along_samples = all_dims(call["dim"], len(call.shape)) == [kind.dim]
    return call.mixed("computes softmax over the samples") if along_samples else plain(kind)
