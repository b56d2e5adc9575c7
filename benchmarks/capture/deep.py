"""Deep nets of the usual families on small inputs: hundreds of modules, and little for each of them to compute."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import nfold

CLASSES, WORDS, LENGTH = 10, 61, 32
NUM_SAMPLES, BATCH_SIZE = 256, 32


class Bottleneck(nn.Module):
    """Three convolutions and a way past them (He et al. 2016)."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != outside:
            past = nn.Conv2d(inside, outside, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(past, nn.BatchNorm2d(outside))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return four times as many channels as the block is wide."""
        past = values if self.downsample is None else self.downsample(values)
        values = self.relu(self.bn1(self.conv1(values)))
        values = self.relu(self.bn2(self.conv2(values)))
        return self.relu(self.bn3(self.conv3(values)) + past)


def resnet(blocks: tuple[int, ...] = (3, 8, 36, 3), width: int = 16) -> nn.Module:
    """ResNet-152 by its blocks, a quarter as wide."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inside = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inside, width << stage, 2 if stage and block == 0 else 1))
            inside = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES))


class DenseLayer(nn.Module):
    """Adds channels to those that it was given (Huang et al. 2017)."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), nn.Conv2d(inside, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Return the new channels alone."""
        values = self.conv1(F.relu(self.norm1(torch.cat(parts, 1))))
        return self.conv2(F.relu(self.norm2(values)))


class DenseBlock(nn.Module):
    """Layers that each see all layers before."""

    def __init__(self, inside: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inside + index * growth, growth) for index in range(count))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the channels of all layers."""
        parts = [values]
        for layer in self.layers:
            parts.append(layer(parts))
        return torch.cat(parts, 1)


def densenet(blocks: tuple[int, ...] = (6, 12, 24, 16), growth: int = 8) -> nn.Module:
    """DenseNet-121 by its blocks, a quarter as wide."""
    inside = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, inside, 3, padding=1, bias=False)]
    for index, count in enumerate(blocks):
        layers.append(DenseBlock(inside, growth, count))
        inside += count * growth
        if index + 1 < len(blocks):
            halved = nn.Conv2d(inside, inside // 2, 1, bias=False)
            layers.append(nn.Sequential(nn.BatchNorm2d(inside), nn.ReLU(), halved, nn.AvgPool2d(2)))
            inside //= 2
    head = [nn.BatchNorm2d(inside), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES)]
    return nn.Sequential(*layers, *head)


class Attention(nn.Module):
    """Causal self-attention, its sizes read from its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.mix, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        batch, count, width = tokens.size()
        parts = self.mix(tokens).split(width, dim=2)
        query, key, value = (part.view(batch, count, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        looked = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.drop(self.join(looked.transpose(1, 2).contiguous().view(batch, count, width)))


class Block(nn.Module):
    """Attention and a perceptron, each with a way past it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.look = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.think = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.tell, self.drop = nn.Linear(4 * width, width), nn.Dropout(0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        tokens = tokens + self.look(self.norm1(tokens))
        return tokens + self.drop(self.tell(F.gelu(self.think(self.norm2(tokens)))))


class Gpt(nn.Module):
    """A decoder (Radford et al. 2019), by its blocks."""

    def __init__(self, depth: int = 24, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return (batch, words, vocabulary)."""
        _, count = words.size()
        tokens = self.words(words) + self.places(torch.arange(count, device=words.device))
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(self.norm(tokens))


class OfTensors(nn.Module):
    """What a tracer sees here is no tensor, and it goes where no tensor goes."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the same."""
        return values if type(values) is torch.Tensor else 2 * values


class Hooked(nn.Module):
    """Changes its gradient, which torch.export does not follow."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the same."""
        values = (values * 1.0).requires_grad_()
        values.register_hook(lambda gradient: gradient.clamp(-1.0, 1.0))
        return values


def exported() -> nn.Module:
    """Return a ResNet-101 that torch.fx follows wrongly."""
    return nn.Sequential(OfTensors(), *resnet((3, 4, 23, 3)))


def partly_whole() -> nn.Module:
    """Return one that torch.export does not follow either, so that modules are kept whole one after another."""
    return nn.Sequential(OfTensors(), Hooked(), *resnet((3, 4, 23, 3)))


def images() -> Dataset[Any]:
    """Return pictures of 3 x 16 x 16 with classes."""
    draw = torch.Generator().manual_seed(7)
    pictures = torch.randn(NUM_SAMPLES, 3, 16, 16, generator=draw)
    return TensorDataset(pictures, torch.randint(CLASSES, (NUM_SAMPLES,), generator=draw))


def texts() -> Dataset[Any]:
    """Return sentences with, for each word, the next one."""
    words = torch.randint(WORDS, (NUM_SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(8))
    return TensorDataset(words[:, :-1], words[:, 1:])


def word_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy over words."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def _program(model: Callable[[], nn.Module], data: Callable[[], Dataset[Any]], loss: Any) -> nfold.Program:
    optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    return nfold.Program(model=model, loss=loss, optimizer=optimizer, train_data=data, batch_size=BATCH_SIZE, epochs=1)


def program_resnet152() -> nfold.Program:
    """Return 50 blocks of three convolutions."""
    return _program(resnet, images, F.cross_entropy)


def program_resnet50() -> nfold.Program:
    """Return 16 of them, to see how seconds grow."""
    return _program(partial(resnet, (3, 4, 6, 3)), images, F.cross_entropy)


def program_densenet121() -> nfold.Program:
    """Return 58 layers that each see those before."""
    return _program(densenet, images, F.cross_entropy)


def program_gpt24() -> nfold.Program:
    """Return 24 blocks of attention."""
    return _program(Gpt, texts, word_loss)


def program_exported() -> nfold.Program:
    """Return a net to export."""
    return _program(exported, images, F.cross_entropy)


def program_partly_whole() -> nfold.Program:
    """Return a net of which parts stay whole."""
    return _program(partly_whole, images, F.cross_entropy)


NETS: dict[str, Callable[[], nfold.Program]] = {
    "resnet50": program_resnet50,
    "resnet152": program_resnet152,
    "densenet121": program_densenet121,
    "gpt24": program_gpt24,
    "resnet101, exported": program_exported,
    "resnet101, partly whole": program_partly_whole,
}
