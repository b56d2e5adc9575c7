"""AlexNet, VGG-16 and ResNet-50 at their published sizes, on made-up photographs of 224 x 224.

What a step moves does not depend on what is in a picture.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import Dataset

import nfold

NUM_CLASSES = 1000
VGG_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Simonyan and Zisserman 2015, table 1, column D: convolutions between two poolings."""
RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""He et al. 2016, table 1: width and number of bottleneck blocks."""


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """Noise with a label, made when it is asked for."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 224, 224, generator=generator), index % NUM_CLASSES


def load_train() -> Photographs:
    """Return a few hundred pictures."""
    return Photographs(512)


def make_alexnet() -> nn.Module:
    """Return the one-tower network (Krizhevsky 2014): 61.1 million parameters, 58.6 of them in three layers."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, NUM_CLASSES),
    )


def make_vgg16() -> nn.Module:
    """Return VGG-16: 138.4 million parameters and 15.5 billion multiplications a picture."""
    layers: list[nn.Module] = []
    inside = 3
    for widths in VGG_WIDTHS:
        for width in widths:
            layers += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU()]
            inside = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, NUM_CLASSES)]
    return nn.Sequential(*layers)


class Bottleneck(nn.Module):
    """Three convolutions, narrow inside, and a way past them."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.first = nn.Conv2d(inside, width, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.third = nn.Conv2d(width, outside, 1, bias=False)
        self.third_norm = nn.BatchNorm2d(outside)
        self.past: nn.Module = nn.Identity()
        if inside != outside:
            self.past = nn.Sequential(nn.Conv2d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return four times `width` images."""
        inner = torch.relu(self.first_norm(self.first(images)))
        inner = torch.relu(self.second_norm(self.second(inner)))
        return torch.relu(self.third_norm(self.third(inner)) + self.past(images))


def make_resnet50() -> nn.Module:
    """Return ResNet-50: 25.6 million parameters in 53 convolutions and one linear layer."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    inside = 64
    for stage, (width, blocks) in enumerate(RESNET_STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(inside, width, stride=2 if stage and not block else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, NUM_CLASSES))


def program(make_model: Callable[[], nn.Module] = make_alexnet, batch_size: int = 128) -> nfold.Program:
    """Return the program of one of the networks."""
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
        train_data=load_train,
        batch_size=batch_size,
        epochs=1,
    )


def alexnet() -> nfold.Program:
    """Return AlexNet."""
    return program(make_alexnet)


def vgg16() -> nfold.Program:
    """Return VGG-16, at half the batch."""
    return program(make_vgg16, batch_size=64)


def resnet50() -> nfold.Program:
    """Return ResNet-50."""
    return program(make_resnet50)
