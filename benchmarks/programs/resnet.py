"""A residual network with batch norm (He et al. 2016, CIFAR form, narrow): 272 thousand parameters, much compute."""

import sys
from pathlib import Path

import torch
from torch import nn

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from digits32 import batch_size, load_test, load_train

WIDTHS = (16, 32, 64)
BLOCKS = 3


class Block(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        stride = 1 if inside == outside else 2
        self.first = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        self.past = nn.Conv2d(inside, outside, 1, stride=stride, bias=False) if stride == 2 else nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return as many images, perhaps of half the size."""
        inner = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(inner)) + self.past(images))


def make_model() -> nn.Module:
    """Return the network: 20 layers."""
    layers: list[nn.Module] = [nn.Conv2d(1, WIDTHS[0], 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0])]
    width = WIDTHS[0]
    for wider in WIDTHS:
        for _ in range(BLOCKS):
            layers.append(Block(width, wider))
            width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def program() -> nfold.Program:
    """Return the program."""
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
        train_data=load_train,
        test_data=load_test,
        batch_size=batch_size(96),
        epochs=10,
    )
