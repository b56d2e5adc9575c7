"""Rules for operators that make tensors, and for those that give no tensor."""

from nfold.capture.proof.rules.calls import ONE_OVER, Call
from nfold.capture.proof.rules.counting import symbols_of
from nfold.capture.proof.rules.kinds import SHARED, Kind, SampleRows, Sum, plain
from nfold.capture.proof.rules.rule_registry import rule
from nfold.capture.proof.rules.views import uniform

_CONSTANT = "zeros ones empty new_zeros new_ones new_empty empty_strided new_empty_strided"
_DRAWN = "rand randn randint normal_functional bernoulli_p"
_LIKE = "zeros_like ones_like empty_like"
_DRAWN_LIKE = "rand_like randn_like randint_like"
_IGNORED = "_assert_async _assert_tensor_metadata sym_size sym_numel sym_stride _assert_scalar"


@rule(*_CONSTANT.split())
def makes(call: Call) -> Kind:
    """Make the same for every sample."""
    return uniform(call, SHARED)


@rule("full", "new_full", "fill", "full_like", "scalar_tensor")
def fills(call: Call) -> Kind:
    """Fill with one number."""
    number = call.kind_of(call.get("fill_value", call.get("value", call.get("s"))))
    if number != SHARED and (number == ONE_OVER or any(call.samples.multiple(size) for size in call.shape)):
        return (
            call.mixed("computes with the number of samples")
            if isinstance(number, Sum) or number == ONE_OVER
            else number
        )
    return uniform(call, SHARED) if number == SHARED else number


@rule(*_LIKE.split())
def makes_like(call: Call) -> Kind:
    """Make the same for every sample, in the shape of something."""
    kind = call.kind("self")
    return (
        SampleRows(dim=kind.dim, inner=kind.inner, uniform=True)
        if isinstance(kind, SampleRows)
        else uniform(call, SHARED)
    )


@rule(*_DRAWN.split())
def draws(call: Call) -> Kind:
    """Draw for each sample."""
    kind = uniform(call, SHARED)
    return plain(kind) if isinstance(kind, SampleRows) else kind


@rule(*_DRAWN_LIKE.split())
def draws_like(call: Call) -> Kind:
    """Draw in the shape of something."""
    kind = call.kind("self")
    return plain(kind) if isinstance(kind, SampleRows) else draws(call)


@rule("arange")
def counts(call: Call) -> Kind:
    """Count: up to the number of samples this is each one's place."""
    times = call.samples.multiple(call.shape[0])
    if not times:
        sized = any(call.samples.symbol in symbols_of(call.get(name)) for name in ("start", "end", "step"))
        return call.unknown("numbers are counted from the size of the batch") if sized else SHARED
    begin, step = call.get("start", 0), call.get("step", 1)
    plain_step = isinstance(step, int) and isinstance(begin, int) and begin == 0
    return (
        SampleRows(dim=0, index=step)
        if times == 1 and plain_step
        else call.unknown("numbers are counted up to the size of the batch")
    )


@rule("randperm")
def shuffles(call: Call) -> Kind:
    """Shuffle: of samples, this is a random order of them."""
    return call.mixed("puts the samples in a random order") if call.samples.multiple(call.shape[0]) else SHARED


@rule("eye", "linspace", "tril_indices", "triu_indices")
def tables(call: Call) -> Kind:
    """Make a table."""
    return (
        call.unknown("a table is made as large as the batch") if any(map(call.samples.multiple, call.shape)) else SHARED
    )


@rule(*_IGNORED.split())
def ignores(call: Call) -> Kind:
    """Give nothing, or what was given."""
    return next((call.kind_of(each) for each in call.tensors()), SHARED)
