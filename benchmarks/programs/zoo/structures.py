"""Nets whose weights, inputs or outputs are arranged in an unusual way."""

from typing import Any

import torch
from programs.zoo.convolutional import conv
from programs.zoo.style import CLASSES, WORDS
from torch import nn
from torch.nn import functional as F


class TiedAutoencoder(nn.Module):
    """Decodes with the weights that it encodes with, a convolution's and a linear layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Linear(64, 12)
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.conv(x))
        code = torch.tanh(self.linear(hidden.flatten(1)))
        hidden = torch.tanh(F.linear(code, self.linear.weight.t(), self.bias)).view(-1, 4, 4, 4)
        return F.conv_transpose2d(hidden, self.conv.weight, stride=2, padding=1, output_padding=1)


class Variational(nn.Module):
    """Draws its code from a distribution that it computes; the loss is given that too."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(128, 16), nn.Linear(8, 128)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, spread = torch.tanh(self.encode(x.flatten(1))).chunk(2, dim=-1)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return self.decode(code).view_as(x), mean, spread


def variational_loss(outputs: tuple[torch.Tensor, ...], targets: torch.Tensor) -> torch.Tensor:
    """Return the error plus the divergence from a normal distribution."""
    restored, mean, spread = outputs
    return F.mse_loss(restored, targets) - 0.05 * (1 + spread - mean.pow(2) - spread.exp()).mean()


class Repeated(nn.Module):
    """One block, batch norm in it, called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = conv(2, 6), conv(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = x + self.block(x)
        return self.head(x.mean((2, 3)))


class Frozen(nn.Sequential):
    """Its first and one of its middle layers do not learn."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(2, 4, 3),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3),
            nn.Flatten(),
            nn.Linear(16, 8),
            nn.Linear(8, CLASSES),
        )
        for index in (0, 4):
            self[index].requires_grad_(False)
        self[6].bias.requires_grad_(False)


class Siamese(nn.Module):
    """One net for two inputs, compared at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(2, 6), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 8))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        left, right = inputs
        return self.scale * F.cosine_similarity(self.body(left), self.body(right))


class WideAndDeep(nn.Module):
    """A dict of inputs, embeddings, a linear path beside a deep one, a dict of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(WORDS, 3) for _ in range(3))
        self.wide, self.deep = nn.Linear(5, CLASSES), nn.Sequential(nn.Linear(14, 10), nn.ReLU(), nn.Linear(10, 8))
        self.kind, self.value = nn.Linear(8, CLASSES), nn.Linear(8, 1)
        self.log_scale = nn.Parameter(torch.zeros(2))

    def forward(self, row: dict[str, torch.Tensor]) -> dict[str, Any]:
        columns = [table(row["kinds"][:, index]) for index, table in enumerate(self.tables)]
        deep = self.deep(torch.cat([*columns, row["numbers"]], dim=1))
        kind = self.kind(deep) + self.wide(row["numbers"])
        return {"kind": kind, "value": self.value(deep).squeeze(-1), "scales": self.log_scale}


def two_losses(outputs: dict[str, Any], targets: dict[str, torch.Tensor]) -> torch.Tensor:
    """Weigh two losses by learnt scales."""
    kind, value = outputs["scales"]
    first = F.cross_entropy(outputs["kind"], targets["kind"])
    return (
        first * torch.exp(-kind)
        + F.smooth_l1_loss(outputs["value"], targets["value"]) * torch.exp(-value)
        + kind
        + value
    )


class WeightNormed(nn.Module):
    """Weights computed from others before they are used."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.conv, self.hidden, self.head = norm(nn.Conv2d(2, 4, 3)), norm(nn.Linear(144, 12)), nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.hidden(torch.tanh(self.conv(x)).flatten(1))))


class Highway(nn.Module):
    """Gates that carry the input past a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(128, 12), nn.Linear(12, CLASSES)
        self.layers, self.gates = (nn.ModuleList(nn.Linear(12, 12) for _ in range(3)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.stem(x.reshape(x.size(0), -1)))
        for layer, gate in zip(self.layers, self.gates, strict=True):
            opened = torch.sigmoid(gate(x))
            x = opened * F.relu(layer(x)) + (1 - opened) * x
        return self.head(x)


class Experts(nn.Module):
    """All experts are asked, a gate weighs them: a weight that every sample uses."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(128, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(128, 6), nn.Tanh(), nn.Linear(6, CLASSES)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        weights = F.softmax(self.gate(x), dim=1)
        answers = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (answers * weights[..., None]).sum(dim=1)


class Unused(nn.Module):
    """A layer that nothing uses, one whose result nothing uses, and one under no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(128, 10), nn.Linear(10, CLASSES)
        self.unused, self.dead, self.watched = nn.Linear(3, 3), nn.Linear(10, 10), nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.body(x.flatten(1)))
        self.dead(x)
        with torch.no_grad():
            scale = torch.sigmoid(self.watched(x))
        return self.head(x * scale)


class Scaled(nn.Module):
    """A weight that learns in one place, is only looked at in others, and is cast in a third."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(128, 12, bias=False), nn.Linear(12, CLASSES)
        self.gain = nn.Parameter(torch.ones(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.linear(x.flatten(1), self.body.weight / self.body.weight.detach().norm())
        with torch.no_grad():
            level = self.gain.abs().mean()
        return self.head(torch.tanh(x * (1.0 + self.gain.float()).to(x.dtype)) / (1.0 + level))


class Integers(nn.Module):
    """A chain of linear maps over whole numbers that halves nothing: any wrong or doubled term shows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 4)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randint(-2, 3, parameter.shape))
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def weighted_sum(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a mean over samples whose gradient by the last weights does not depend on them, so values stay small."""
    return (outputs * targets).sum(1).mean()
