"""Operators in parts compute what the whole ones do: exactly, on whole numbers, and cut anywhere."""

import random
from functools import cache

import pytest
import torch
from cutting import assert_equal, cut_at_random, play
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture
from nfold.capture.cutting.captured import Captured
from nfold.capture.cutting.program_splitting import split
from nfold.capture.gate import Gated, pass_gate
from nfold.core.graph import ModelGraph
from nfold.planning.operator_parts.parts import why_whole
from nfold.planning.operator_parts.splitting import split_graph

CLASSES = 4


class Functional(nn.Module):
    """Weights of its own, and the functions of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.shift = nn.Parameter(torch.ones(6, 1, 3, 3)), nn.Parameter(torch.ones(6))
        self.matrix = nn.Parameter(torch.ones(5, 54))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(F.conv2d(x, self.kernel, self.shift, stride=1, groups=2, padding=1)), 2)
        return F.linear(x.flatten(1), self.matrix)


class Watching(nn.Module):
    """Joins a value that comes in parts where no gradient is kept, and again where one is."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(72, 6), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x.flatten(1))
        with torch.no_grad():
            largest = x.max() + 1
        return self.head(x * largest + x)


class Two(nn.Module):
    """A value in parts with two users, one of them grouped."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 1, groups=3)
        self.fc = nn.Linear(6 * 36, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.a(x))
        return self.fc((self.b(x) + x).flatten(1))


class Exported(nn.Module):
    """What torch.fx cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 6, 3), nn.Linear(24, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(F.relu(self.conv(x)), 2)
        return self.fc(x.flatten(1)) if type(x.shape[1]) is int else x


def images_net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES))


def flat(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(2), *layers, nn.Flatten(), nn.LazyLinear(CLASSES))


NETS = {
    "conv": (lambda: images_net(nn.Conv2d(2, 5, 3), nn.ReLU()), {"0": 3, "3": 2}),
    "in place": (lambda: images_net(nn.Conv2d(2, 5, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2)), {"0": 2}),
    "stride, dilation, no bias": (
        lambda: images_net(nn.Conv2d(2, 6, 3, stride=2, dilation=2, padding=3, bias=False), nn.Tanh()),
        {"0": 6},
    ),
    "reflected": (lambda: images_net(nn.Conv2d(2, 4, 3, padding=2, padding_mode="reflect")), {"0": 2}),
    "same": (lambda: images_net(nn.Conv2d(2, 4, 3, padding="same")), {"0": 4}),
    "towers": (
        lambda: images_net(
            nn.Conv2d(2, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 2, groups=2), nn.ReLU(inplace=True)
        ),
        {"0": 2, "3": 2},
    ),
    "group fed": (lambda: images_net(nn.Conv2d(2, 6, 3), nn.Conv2d(6, 9, 1, groups=3)), {"1": 2}),
    "groups of the input": (lambda: images_net(nn.Conv2d(2, 4, 3, groups=2)), {"0": 2}),
    "depthwise": (
        lambda: images_net(nn.Conv2d(2, 6, 1), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 4, 1)),
        {"0": 2, "1": 4},
    ),
    "linear": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 7), nn.GELU(), nn.Linear(7, CLASSES)),
        {"1": 3, "3": 4},
    ),
    "linear of sequences": (
        lambda: flat(nn.Linear(36, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)),
        {"1": 2, "3": 3},
    ),
    "conv1d": (lambda: flat(nn.Conv1d(2, 4, 5, groups=2), nn.MaxPool1d(2)), {"1": 2}),
    "conv3d": (lambda: images_net(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 4, (2, 3, 3)), nn.Flatten()), {"1": 2}),
    "functional": (Functional, {"conv2d": 2, "linear": 5}),
    "exported": (Exported, {"conv.conv2d": 2, "fc.linear": 2}),
    "watching": (Watching, {"fc": 3}),
    "two users": (Two, {"a": 2, "b": 3}),
}


def example(whole_numbers: bool = False) -> Example:
    def make(size, which):
        generator = torch.Generator().manual_seed(which)
        draw = torch.randint(-3, 4, (size, 2, 6, 6), generator=generator).double()
        inputs = draw if whole_numbers else draw + torch.rand(size, 2, 6, 6, generator=generator, dtype=torch.float64)
        return inputs, torch.randint(0, CLASSES, (size,), generator=generator)

    return Example(make=make)


def build(make) -> nn.Module:
    torch.manual_seed(0)
    model = make().double()
    with torch.no_grad():
        model(torch.zeros(2, 2, 6, 6, dtype=torch.float64))  # gives lazy layers their size
    return model.double()


@cache
def captured_net(net: str) -> tuple[Captured, dict[str, int]]:
    make, splits = NETS[net]
    return capture(build(make), F.cross_entropy, example()), splits


def names(graph: ModelGraph) -> list[str]:
    return [operator.name for operator in graph.operators]


@pytest.mark.parametrize("net", NETS)
def test_a_split_program_passes_the_gate(net):
    captured, splits = captured_net(net)
    parts = split(captured, splits)
    assert parts.graph == split_graph(captured.graph, splits)
    make, _ = NETS[net]
    assert pass_gate(parts, lambda: build(make), F.cross_entropy, example()) == Gated()


@pytest.mark.parametrize("net", NETS)
def test_parts_anywhere_compute_what_the_whole_does(net):
    captured, splits = captured_net(net)
    parts, batch = split(captured, splits), example().batch(3)
    expected = play(captured, [names(captured.graph)], batch)
    for seed in range(4):
        pieces = cut_at_random(names(parts.graph), random.Random(seed))
        assert_equal(play(parts, pieces, batch), expected, 1e-13)


@pytest.mark.parametrize("net", ["conv", "towers", "in place", "group fed", "linear"])
def test_tensors_have_the_size_that_the_graph_says(net):
    captured, splits = captured_net(net)
    parts = split(captured, splits)
    for tensor in parts.graph.tensors:
        if tensor.producer:
            assert parts.layout.cut.specs[parts.layout.tensors[tensor.name]].bytes() == (
                tensor.bytes_per_sample,
                tensor.fixed_bytes,
            )


def test_whole_numbers_come_out_exactly():
    def whole(model):
        for parameter in model.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape, generator=torch.Generator().manual_seed(1)).double()
        return model

    def loss(outputs, targets):
        return (outputs * targets[:, None]).sum()

    make = lambda: images_net(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 2, groups=2), nn.ReLU())  # noqa: E731
    batches = example(whole_numbers=True)
    captured = capture(whole(build(make)), loss, batches)
    parts = split(captured, {"0": 3, "2": 2, "5": 4})
    expected = play(captured, [names(captured.graph)], batches.batch(3))
    assert_equal(play(parts, [[name] for name in names(parts.graph)], batches.batch(3)), expected, 0.0)


def test_leaves_take_the_gradients_of_their_rows():
    captured, splits = captured_net("conv")
    own = dict(captured.model.named_parameters())
    rows = {each.name: each.rows for each in split_graph(captured.graph, splits).parameters if each.rows}
    leaves = {name: nn.Parameter(own[each.parameter].data[each.start : each.stop]) for name, each in rows.items()}
    parts, batch = split(captured, splits, leaves), example().batch(3)
    expected = play(captured, [names(captured.graph)], batch)
    found = play(parts, [[name] for name in names(parts.graph)], batch)
    assert all(found[name] is None for name in own)
    for name, each in rows.items():
        torch.testing.assert_close(leaves[name].grad, expected[each.parameter][each.start : each.stop])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(72, 72), nn.Linear(72, 72), nn.Linear(72, CLASSES)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.b(self.a(x.flatten(1))))


class Added(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.head = nn.Linear(72, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).add_(x).flatten(1))


class Blurred(nn.Conv2d):
    __module__ = "torch.nn.of_somebody"  # so that it is kept in one piece, as torch's own layers are

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x.mean()


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, CLASSES))
    model[1].register_forward_hook(lambda module, args, result: result * 2)
    return model


def watched_weight() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, CLASSES))
    model[1].weight.register_hook(lambda gradient: gradient * 2)
    return model


@pytest.mark.parametrize(
    ("make", "operator", "reason"),
    [
        (Tied, "a", "a.weight is used by another operator too"),
        (Added, "conv", "one piece with what changes its result in place"),
        (hooked, "1", "hooks"),
        (watched_weight, "1", "hooks"),
        (lambda: images_net(Blurred(2, 3, 3)), "0", "Blurred may compute"),
        (lambda: nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(72, CLASSES))), "1", "Linear may compute"),
        (lambda: images_net(nn.ConvTranspose2d(2, 3, 2)), "0", "ConvTranspose2d may compute"),
    ],
)
def test_what_must_stay_whole_says_why(make, operator, reason):
    graph = capture(build(make), F.cross_entropy, example()).graph
    assert reason in why_whole(graph, graph.operator(operator))


def test_a_weight_that_is_made_of_another_one_each_time_is_not_cut():
    graph = capture(build(lambda: images_net(spectral_norm(nn.Conv2d(2, 3, 3)))), F.cross_entropy, example()).graph
    assert not any(operator.channels for operator in graph.operators if "onv" in operator.kind)
