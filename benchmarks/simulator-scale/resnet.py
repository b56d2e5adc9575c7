"""ResNet-50 as a ModelGraph and a declared profile: its layers from their shapes, without torch."""

from collections.abc import Iterator

from nfold.core.graph import ModelGraph, Operator, Parameter, Statistic, Tensor
from nfold.core.profile import ChunkTiming, OperatorProfile, Profile, Timing

STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))
"""Width, bottleneck blocks and side of the feature map of each stage (He et al. 2016, table 1)."""


def layers() -> Iterator[tuple[str, int, int, int, int]]:
    """Yield name, input and output channels, kernel and output side of every convolution, then of the last layer."""
    yield "conv1", 3, 64, 7, 112
    inside = 64
    for stage, (width, blocks, side) in enumerate(STAGES, 1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            first_side = side * (2 if stage > 1 and block == 0 else 1)
            yield f"{name}.conv1", inside, width, 1, first_side
            yield f"{name}.conv2", width, width, 3, side
            yield f"{name}.conv3", width, 4 * width, 1, side
            if block == 0:
                yield f"{name}.downsample", inside, 4 * width, 1, side
            inside = 4 * width
    yield "fc", inside, 1000, 1, 1


def resnet50() -> ModelGraph:
    """Return the model as a chain of convolutions with their batch norms, and a linear layer: 161 trained tensors."""
    operators, parameters, statistics = [], [], []
    tensors = [_tensor("input", "", "conv1", False), _tensor("target", "", "Loss", False)]
    before, found = "input", list(layers())
    for index, (name, channels, width, kernel, side) in enumerate(found):
        norm = name != "fc"
        own = [(f"{name}.weight", channels * width * kernel * kernel)]
        own += [(f"{name}.norm.weight", width), (f"{name}.norm.bias", width)] if norm else [("fc.bias", width)]
        parameters += [
            Parameter(
                name=each, num_elements=count, num_bytes=4 * count, dtype="float32", trainable=True, users=(name,)
            )
            for each, count in own
        ]
        if norm:
            statistics.append(Statistic(module=f"{name}.norm", num_channels=width, num_calls=1, dtype="float32"))
        operators.append(
            Operator(
                name=name,
                kind="Conv2d" if norm else "Linear",
                inputs=(before,),
                outputs=(f"{name}.out",),
                parameters=tuple(each for each, _ in own),
                flops_per_sample=2.0 * channels * width * kernel * kernel * side * side,
                statistics=(f"{name}.norm",) if norm else (),
            )
        )
        before = f"{name}.out"
        user = found[index + 1][0] if index + 1 < len(found) else "Loss"
        tensors.append(_tensor(before, name, user, True))
    operators.append(
        Operator(name="Loss", kind="cross_entropy", inputs=(before, "target"), outputs=("loss",), parameters=())
    )
    tensors.append(_tensor("loss", "Loss", "", True))
    return ModelGraph(
        operators=tuple(operators),
        tensors=tuple(tensors),
        parameters=tuple(parameters),
        statistics=tuple(statistics),
        capture="fx",
    )


def profile(graph: ModelGraph, operations_per_s: float) -> Profile:
    """Return seconds in proportion to the floating-point operations; backward takes twice as long as forward."""
    each = {op.name: op.flops_per_sample / operations_per_s for op in graph.operators}
    return Profile(
        device_kind="cpu",
        num_threads=1,
        operators=tuple(
            OperatorProfile(operator=name, timings=_timings(per), saved_bytes_per_sample=1.0)
            for name, per in each.items()
        ),
        whole=_timings(sum(each.values())),
        update=Timing(median_s=0.02, spread_s=0.0, repeats=1),
        load_s_per_sample=0.0,
        parameter_bytes=graph.parameter_bytes,
        optimizer_bytes=graph.parameter_bytes,
        activation_bytes_per_sample=1e8,
        base_bytes=0,
        peak_bytes=0,
    )


def _timings(per_sample_s: float) -> tuple[ChunkTiming, ...]:
    return tuple(
        ChunkTiming(
            chunk_size=size,
            forward=Timing(median_s=size * per_sample_s, spread_s=0.0, repeats=1),
            backward=Timing(median_s=2 * size * per_sample_s, spread_s=0.0, repeats=1),
        )
        for size in (1, 64)
    )


def _tensor(name: str, producer: str, user: str, requires_grad: bool) -> Tensor:
    return Tensor(
        name=name,
        producer=producer,
        consumers=(user,) if user else (),
        bytes_per_sample=4.0,
        requires_grad=requires_grad,
    )
