"""Programs that ask for gradients in forward or in the loss: physics-informed nets, penalties on gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cutting import assert_equal, play
from torch import nn
from torch.nn import functional as F

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture
from nfold.capture.proof.prove import prove


class Physics(nn.Module):
    """Gives u, and the coordinates with the history from which its derivatives come."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.clone().requires_grad_(True)
        return x, self.net(x)


def heat(outputs: Any, target: torch.Tensor) -> torch.Tensor:
    x, u = outputs
    first = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)[0][:, 0:1]
    return ((second - first[:, 1:2] + u - target) ** 2).mean()


def plane(size: int, which: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(which)
    return torch.rand(size, 2, generator=draw, dtype=torch.float64), torch.zeros(size, 1, dtype=torch.float64)


def test_an_equation_in_the_loss_is_proved_and_computed_as_it_is() -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return Physics().double()

    found = capture(model(), heat, Example(make=plane), rebuild=model)
    assert (found.graph.indivisible, found.graph.unproved) == ("", "")
    notes = " ".join(found.graph.notes)
    assert "the program takes a gradient itself" in notes
    assert not any(word in notes for word in ("allow_unused", "retain_graph", "fx", "export"))
    net, batch = model(), plane(6, 9)
    loss = heat(net(batch[0]), batch[1])
    loss.backward()
    expected = {"loss": loss.detach()} | {name: each.grad for name, each in net.named_parameters()}
    assert_equal(play(found, [["model"]], batch), expected)


Computes = Callable[[torch.Tensor], torch.Tensor]
WITHIN: dict[str, Computes] = {
    "softplus": lambda z: F.softplus(z[:, 2:7]),
    "leaky relu": lambda z: F.leaky_relu(z) ** 3,
    "mish": lambda z: F.mish(z).select(1, 3) ** 2,
    "gates": lambda z: F.glu(z, 1),
    "maximum": lambda z: F.max_pool2d(z.view(-1, 1, 3, 4), 2),
    "average": lambda z: F.avg_pool2d(z.view(-1, 1, 3, 4), 2) ** 2,
    "padded": lambda z: F.pad(z.view(-1, 1, 3, 4), (1, 1, 1, 1), "reflect") ** 2,
    "enlarged": lambda z: F.interpolate(z.view(-1, 1, 3, 4), scale_factor=2) ** 2,
    "norm": lambda z: F.layer_norm(z, (12,), torch.ones(12, dtype=z.dtype)),
    "time first": lambda z: z.view(-1, 3, 4).transpose(0, 1)[1:] ** 2,
}
ACROSS: dict[str, Computes] = {
    "some samples": lambda z: z[:2] ** 2,
    "one sample": lambda z: z[0] ** 2,
    "mean": lambda z: (z**2).mean()[None],
    "product": lambda z: (z @ z.t()) ** 2,
}


def verdict(computes: Computes) -> str:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone().requires_grad_(True)
            return torch.autograd.grad(computes(self.layer(x)).sum(), x, create_graph=True)[0]

    def batch(size: int, which: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 12, generator=torch.Generator().manual_seed(which)), torch.zeros(size, 12)

    return prove(Net(), F.mse_loss, Example(make=batch)).verdict


@pytest.mark.parametrize("name", WITHIN)
def test_a_gradient_within_samples_is_proved(name: str) -> None:
    assert verdict(WITHIN[name]) == "proved"


@pytest.mark.parametrize("name", ACROSS)
def test_a_gradient_across_samples_is_not(name: str) -> None:
    assert verdict(ACROSS[name]) != "proved"
