"""Networks of the usual families on 32 x 32 images, small enough that two cores can play a cluster.

Each is a list of blocks in a row, so that a person can split it by hand between two of them.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from digits32 import load_test, load_train

NUM_CLASSES = 10
VGG_WIDTHS = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
"""Simonyan and Zisserman 2015, table 1, column A; 0 is a pooling."""
MOBILE_STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))
"""Sandler et al. 2018, table 2 without its last stage: expansion, width, blocks, stride."""


class Residual(nn.Module):
    """Adds its input, brought to the same shape, to what its body makes of it."""

    def __init__(self, body: nn.Module, past: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.body, self.past, self.last = body, past, last

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the body's shape."""
        return self.last(self.body(values) + self.past(values))


class Attention(nn.Module):
    """Self-attention with several heads over (batch, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        batch, count, width = tokens.shape
        mixed = self.mix(tokens).view(batch, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        looked = nn.functional.scaled_dot_product_attention(mixed[0], mixed[1], mixed[2])
        return self.join(looked.transpose(1, 2).reshape(batch, count, width))


class Patches(nn.Module):
    """Cuts images into patches and gives each a place."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, width, size, stride=size)
        self.places = nn.Parameter(torch.zeros(1, (32 // size) ** 2, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return (batch, patches, width)."""
        return self.cut(images).flatten(2).transpose(1, 2) + self.places


class MeanOfTokens(nn.Module):
    """Averages over the tokens."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (batch, width)."""
        return tokens.mean(dim=1)


def _convolution(inside: int, outside: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution and its batch norm."""
    padding = size // 2
    convolution = nn.Conv2d(inside, outside, size, stride=stride, padding=padding, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outside)]


def alexnet() -> nn.Sequential:
    """16 million parameters, most of them in two wide layers (Krizhevsky et al. 2012, for small images)."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 64, 3, stride=2, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Linear(4096, 2304), nn.ReLU()),
        nn.Sequential(nn.Linear(2304, 1792), nn.ReLU()),
        nn.Linear(1792, NUM_CLASSES),
    )


def vgg() -> nn.Sequential:
    """VGG-11 with the short head that is usual for small images: 9.8 million parameters."""
    blocks, inside = [], 1
    for width in VGG_WIDTHS:
        if width:
            blocks.append(nn.Sequential(nn.Conv2d(inside, width, 3, padding=1), nn.ReLU()))
            inside = width
        else:
            blocks[-1].append(nn.MaxPool2d(2))
    head = nn.Sequential(nn.Flatten(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, NUM_CLASSES))
    return nn.Sequential(*blocks, head)


def resnet18() -> nn.Sequential:
    """ResNet-18 (He et al. 2016) with a first convolution for small images: 11.2 million parameters."""
    blocks: list[nn.Module] = [nn.Sequential(*_convolution(1, 64, stride=2), nn.ReLU())]
    inside = 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            stride = 1 if inside == width else 2
            body = nn.Sequential(*_convolution(inside, width, stride=stride), nn.ReLU(), *_convolution(width, width))
            past = nn.Sequential(*_convolution(inside, width, 1, stride)) if stride == 2 else nn.Identity()
            blocks.append(Residual(body, past, nn.ReLU()))
            inside = width
    return nn.Sequential(*blocks, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, NUM_CLASSES)))


def mobilenet() -> nn.Sequential:
    """MobileNetV2 (Sandler et al. 2018) for small images."""
    blocks: list[nn.Module] = [nn.Sequential(*_convolution(1, 32), nn.ReLU6())]
    inside = 32
    for expansion, width, count, stride in MOBILE_STAGES:
        for index in range(count):
            blocks.append(_inverted(inside, width, expansion, stride if index == 0 else 1))
            inside = width
    head = [*_convolution(inside, 640, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*blocks, nn.Sequential(*head, nn.Linear(640, NUM_CLASSES)))


def _inverted(inside: int, outside: int, expansion: int, stride: int) -> nn.Module:
    wide = inside * expansion
    body = nn.Sequential(
        *([*_convolution(inside, wide, 1), nn.ReLU6()] if expansion > 1 else []),
        *_convolution(wide, wide, 3, stride, groups=wide),
        nn.ReLU6(),
        *_convolution(wide, outside, 1),
    )
    return Residual(body, nn.Identity(), nn.Identity()) if stride == 1 and inside == outside else body


def vit(width: int = 192, depth: int = 6, heads: int = 3) -> nn.Sequential:
    """A small vision transformer (Dosovitskiy et al. 2021): 2.7 million parameters, 64 tokens."""
    blocks: list[nn.Module] = [Patches(width, 4)]
    for _ in range(depth):
        look = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        think = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        blocks += [Residual(look, nn.Identity(), nn.Identity()), Residual(think, nn.Identity(), nn.Identity())]
    return nn.Sequential(*blocks, nn.Sequential(nn.LayerNorm(width), MeanOfTokens(), nn.Linear(width, NUM_CLASSES)))


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "alexnet": alexnet,
    "vgg": vgg,
    "resnet18": resnet18,
    "mobilenet": mobilenet,
    "vit": vit,
}
BATCH_SIZES = {"alexnet": 24, "vgg": 32, "resnet18": 32, "mobilenet": 32, "vit": 32}
LEARNING_RATE, MOMENTUM = 0.01, 0.9


def _program(name: str) -> nfold.Program:
    return nfold.Program(
        model=NETS[name],
        loss=nn.functional.cross_entropy,
        optimizer=partial(torch.optim.SGD, lr=LEARNING_RATE, momentum=MOMENTUM),
        train_data=load_train,
        test_data=load_test,
        batch_size=BATCH_SIZES[name],
        epochs=10,
    )


def program_alexnet() -> nfold.Program:
    """Return the program of `alexnet`."""
    return _program("alexnet")


def program_vgg() -> nfold.Program:
    """Return the program of `vgg`."""
    return _program("vgg")


def program_resnet18() -> nfold.Program:
    """Return the program of `resnet18`."""
    return _program("resnet18")


def program_mobilenet() -> nfold.Program:
    """Return the program of `mobilenet`."""
    return _program("mobilenet")


def program_vit() -> nfold.Program:
    """Return the program of `vit`."""
    return _program("vit")
