"""A dozen small nets, one for each thing that makes a cut hard."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.batches.example import Example

CLASSES = 5


@dataclass(frozen=True)
class Net:
    """A model, its loss and how an input of n samples looks."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    target: Callable[[int], Any] = lambda size: torch.randint(0, CLASSES, (size,))
    loss: Callable[[Any, Any], torch.Tensor] = F.cross_entropy

    def example(self) -> Example:
        """Return batches of random samples."""

        def make(size: int, which: int) -> tuple[Any, Any]:
            state = torch.get_rng_state()
            torch.default_generator.manual_seed(1000 + which)  # notes for other devices take milliseconds
            batch = self.inputs(size), self.target(size)
            torch.set_rng_state(state)
            return batch

        return Example(make=make)

    def model(self, seed: int = 0) -> nn.Module:
        """Return the model in float64."""
        torch.default_generator.manual_seed(seed)
        return self.build().double().train()


def images(size: int) -> torch.Tensor:
    """Return small colour pictures."""
    return torch.randn(size, 3, 8, 8, dtype=torch.float64)


def rows(size: int) -> torch.Tensor:
    """Return vectors of 12."""
    return torch.randn(size, 12, dtype=torch.float64)


def words(size: int) -> torch.Tensor:
    """Return sentences of 6 tokens."""
    return torch.randint(0, 11, (size, 6))


class PlainCNN(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 4, 3),
            nn.ReLU(inplace=True),
            nn.Dropout(0.3),
            nn.Conv2d(4, 4, 3),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(64, CLASSES),
        )


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn(self.stem(x)))
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.head(self.relu(out).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU())
        self.up, self.out = nn.ConvTranspose2d(6, 4, 2, stride=2), nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.down(x)
        deep = self.middle(F.max_pool2d(skip, 2))
        up = F.interpolate(self.up(deep), size=skip.shape[2:])
        return self.out(torch.cat([up, skip], 1)).mean((2, 3))


class TiedAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.bias = nn.Linear(12, 6), nn.Parameter(torch.zeros(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.tanh(self.encode(x)), self.encode.weight.t(), self.bias)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.project = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.size()
        q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)
        q = q.view(B, T, 2, C // 2).transpose(1, 2)
        k = k.view(B, T, 2, C // 2).transpose(1, 2)
        v = v.view(B, T, 2, C // 2).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True)
        x = x + self.project(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(11, 8), nn.Embedding(6, 8), nn.Dropout(0.1)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(0, tokens.size(1), device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out, (hidden, _) = self.lstm(self.embed(tokens))
        return self.head(out[:, -1] + hidden[0].sum(-1, keepdim=True))


class ManyOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(12, 8), nn.Linear(8, CLASSES), nn.Linear(8, 1)

    def forward(self, x: dict[str, Any]) -> dict[str, Any]:
        body = torch.relu(self.body(x["a"]) + x["pair"][0])
        return {"class": self.one(body), "rest": (self.two(body.detach()).squeeze(1), body)}


def many_loss(outputs: dict[str, Any], target: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Weigh three parts."""
    value, body = outputs["rest"]
    return F.cross_entropy(outputs["class"], target[0]) + F.mse_loss(value, target[1]) + body.pow(2).mean() * 0.1


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(12, 12), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.inner(x).chunk(2, dim=1)
        top = torch.topk(a, 2, dim=1).values
        first, _, _ = torch.split(b, [2, 2, 2], dim=1)
        y = torch.cat([a, b[:, 1:], torch.zeros(x.size(0), 1, dtype=x.dtype), top, first], dim=1)
        y[:, 0] = 0.5
        return self.head(y.view(y.shape[0], -1))


class Grouped(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 6, 3, groups=3),
            nn.GroupNorm(2, 6),
            nn.SiLU(),
            nn.Conv2d(6, 6, 3, groups=6),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, CLASSES),
        )


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(12, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.block(x)))


class Frozen(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        )
        self[0].requires_grad_(False)
        self[4].requires_grad_(False)


class DeadBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused, self.dead = (nn.Linear(12, 12) for _ in range(4))
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        self.dead(y)
        with torch.no_grad():
            scale = self.b(y).mean(1, keepdim=True)
            scale = torch.sigmoid(scale)
        return self.head(y * scale)


class OldNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        view = y[:, :6]
        z = self.b(y + 1)
        z.mul_(2.0)
        y.add_(z)
        return self.head(y) * view.sum(1, keepdim=True).tanh() + z[:, :CLASSES]


ZOO = {
    "plain": Net(PlainCNN, images),
    "residual": Net(Residual, images),
    "unet": Net(UNet, images),
    "tied": Net(TiedAutoencoder, rows, rows, F.mse_loss),
    "gpt": Net(GPT, words, words, lambda outputs, target: F.cross_entropy(outputs.reshape(-1, 11), target.reshape(-1))),
    "lstm": Net(Recurrent, words),
    "many": Net(
        ManyOutputs,
        lambda size: {"a": rows(size), "pair": (rows(size)[:, :8], torch.zeros(size))},
        lambda size: (torch.randint(0, CLASSES, (size,)), torch.randn(size, dtype=torch.float64)),
        many_loss,
    ),
    "views": Net(Views, rows),
    "grouped": Net(Grouped, images),
    "twice": Net(Twice, rows),
    "frozen": Net(Frozen, rows),
    "dead": Net(DeadBranch, rows),
    "old-names": Net(OldNames, rows),
}
