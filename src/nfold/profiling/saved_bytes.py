"""What a program keeps from forward to backward, per sample: as a whole, and operator by operator.

Both are slopes between two small batches, so that what does not grow with the batch is left out; where the program
computes on one size alone, all that it keeps of such a batch is shared out among its samples.
"""

from nfold.capture import CellRandom
from nfold.capture.batches.example import LONGEST
from nfold.capture.program.calling import call
from nfold.profiling.bench import Bench
from nfold.profiling.measured_memory import SavedTensorCounter

_SMALL, _LARGE = 2, 4


def whole_kept(bench: Bench) -> float:
    """Return how many more bytes the user's own module keeps for the backward of one more sample."""

    def kept(size: int) -> int:
        inputs, target = bench.example.batch(size, LONGEST)
        bench.begin_anew()
        return SavedTensorCounter(bench.model).count(lambda: bench.program.loss(call(bench.model, inputs), target))[1]

    if only := bench.example.only:
        return kept(only) / only
    return _per_sample(kept(_SMALL), kept(_LARGE))


def operators_kept(bench: Bench) -> dict[str, float]:
    """Return how many more bytes each operator keeps for one more sample; what several keep counts for the first.

    Takes two forward passes.
    """
    operators = bench.captured.graph.operators
    if len(operators) == 1:
        return {operators[0].name: whole_kept(bench)}
    small, large = _kept_alone(bench, _SMALL), _kept_alone(bench, _LARGE)
    return {name: _per_sample(small[name], large[name]) for name in large}


def _kept_alone(bench: Bench, size: int) -> dict[str, int]:
    """Play a batch operator by operator, and count what each keeps."""
    captured, random, keeper = bench.captured, CellRandom(bench.program.seed), SavedTensorCounter(bench.model)
    random.enter(0, 0)
    bench.begin_anew()
    needs = {tensor.name: tensor.requires_grad for tensor in captured.graph.tensors}
    values = dict(zip(("input", "target"), bench.example.batch(size), strict=True))
    alive, found = [], {}
    for operator in captured.graph.operators:
        segment = captured.segment((operator.name,), operator.inputs, operator.outputs, random)
        inputs = [values[name].detach().requires_grad_() if needs[name] else values[name] for name in segment.inputs]
        made, found[operator.name] = keeper.count(lambda segment=segment, inputs=inputs: segment(*inputs))  # type: ignore[misc]
        alive.append(made)
        values |= {name: value.detach() for name, value in zip(segment.outputs, made, strict=True)}
    return found


def _per_sample(small: int, large: int) -> float:
    return max(0.0, (large - small) / (_LARGE - _SMALL))
