"""The floating-point operations of layers whose number is known: two for each product that is added."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, Net, images, rows

from nfold.capture.capture import capture

LENGTH, HEADS, WIDTH = 6, 2, 4


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.projections = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH, bias=False)
        self.outward = nn.Linear(LENGTH * HEADS * WIDTH, CLASSES)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.projections(x).unflatten(-1, (3, HEADS, WIDTH)).movedim(-3, 0).transpose(2, 3)
        return self.outward(F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout).flatten(1))


def sequences(size: int) -> torch.Tensor:
    return torch.randn(size, LENGTH, HEADS * WIDTH, dtype=torch.float64)


def ended(*layers: nn.Module, outputs: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(outputs, CLASSES))


ATTENTION = 2 * LENGTH * HEADS * WIDTH * 3 * HEADS * WIDTH + 2 * 2 * HEADS * LENGTH * LENGTH * WIDTH
PRODUCTS = {
    "linear": (lambda: nn.Linear(12, CLASSES), rows, 2 * 12 * CLASSES),
    "conv": (lambda: ended(nn.Conv2d(3, 4, 3), outputs=144), images, 2 * 36 * 4 * 3 * 9 + 2 * 144 * CLASSES),
    "strided conv with padding": (
        lambda: ended(nn.Conv2d(3, 6, 3, stride=2, padding=1), outputs=96),
        images,
        2 * 16 * 6 * 3 * 9 + 2 * 96 * CLASSES,
    ),
    "grouped conv": (
        lambda: ended(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 3, groups=2), outputs=216),
        images,
        2 * 64 * 4 * 3 + 2 * 36 * 6 * (4 // 2) * 9 + 2 * 216 * CLASSES,
    ),
    "depthwise conv": (
        lambda: ended(nn.Conv2d(3, 3, 3, groups=3), outputs=108),
        images,
        2 * 36 * 3 * 9 + 2 * 108 * CLASSES,
    ),
    "transposed conv": (
        lambda: ended(nn.ConvTranspose2d(3, 2, 3), outputs=200),
        images,
        2 * 64 * 3 * 2 * 9 + 2 * 200 * CLASSES,
    ),
    "attention": (Attention, sequences, ATTENTION + 2 * LENGTH * HEADS * WIDTH * CLASSES),
    "attention with dropout": (
        lambda: Attention(0.5),
        sequences,
        ATTENTION + 2 * LENGTH * HEADS * WIDTH * CLASSES,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_operations_of_a_known_layer_are_counted_exactly(name: str) -> None:
    build, inputs, expected = PRODUCTS[name]
    net = Net(build=build, inputs=inputs)
    graph = capture(net.model(), net.loss, net.example()).graph
    assert graph.capture != "opaque"
    assert sum(operator.flops_per_sample for operator in graph.operators) == expected


def test_each_operator_has_its_own() -> None:
    net = Net(build=lambda: nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, CLASSES)), inputs=rows)
    graph = capture(net.model(), net.loss, net.example()).graph
    found = {operator.name: operator.flops_per_sample for operator in graph.operators if operator.flops_per_sample}
    assert found == {"0": 2 * 12 * 7, "2": 2 * 7 * CLASSES}
