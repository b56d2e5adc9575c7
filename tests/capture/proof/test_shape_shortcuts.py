"""Shapes that are known without torch's decompositions are those that torch computes, and prove the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, Net, images, rows

from nfold.capture.proof import follow
from nfold.capture.proof.prove import prove
from nfold.capture.proof.shape_shortcuts import shortcut


class Pictures(nn.Module):
    """A convolution, then what a test does with its maps."""

    def __init__(self, then: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.norm, self.then = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), then
        self.last = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.then(self, self.conv(x)).mean((2, 3))[:, :4])


class Vectors(nn.Module):
    """Normalised vectors, then what a test does with them."""

    def __init__(self, then: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.norm, self.batch_norm, self.last = nn.LayerNorm(12), nn.BatchNorm1d(12), nn.Linear(12, CLASSES)
        self.then = then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.then(self, x))


MAPS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "batch norm": lambda net, x: net.norm(x),
    "relu": lambda net, x: F.relu(net.norm(x)),
    "joined": lambda net, x: torch.cat([x, F.relu(x), x[:, :2]], 1),
    "joined on one side": lambda net, x: torch.cat([x, x], -1),
    "joined samples": lambda net, x: torch.cat([x, x]).chunk(2)[0],
    "channels last": lambda net, x: net.norm(x.to(memory_format=torch.channels_last)).relu(),
    "turned": lambda net, x: torch.cat([F.relu(x.transpose(2, 3)), x], 1),
    "every second": lambda net, x: F.relu(x[:, :, ::2]),
    "of two types": lambda net, x: torch.cat([x, x.float()], 1),
    "samples alone": lambda net, x: torch.cat([x, torch.zeros(len(x), 2, 8, 8, dtype=x.dtype)], 1),
}
ROWS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "layer norm": lambda net, x: net.norm(x),
    "layer norm of a view": lambda net, x: net.norm(x.view(-1, 1, 12)).squeeze(1),
    "layer norm of a turned view": lambda net, x: F.layer_norm(x.view(-1, 3, 4).transpose(1, 2), (4, 3)).flatten(1),
    "batch norm of vectors": lambda net, x: net.batch_norm(x),
    "linear of a view": lambda net, x: F.linear(x.view(-1, 3, 4).transpose(1, 2)[:, 0], torch.ones(12, 3).double()),
}
PROGRAMS = {
    **{name: (Pictures, images, then) for name, then in MAPS.items()},
    **{name: (Vectors, rows, then) for name, then in ROWS.items()},
}


def laid(value: Any) -> list[Any]:
    """Return all that a program can see of tensors without their values."""
    outputs = value if isinstance(value, tuple) else (value,)
    return [(str(each.shape), str(each.stride()), each.dtype, each.layout, each.device) for each in outputs]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_shortcut_leads_where_torch_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, inputs, then = PROGRAMS[name]
    net = Net(lambda: build(then), inputs)
    taken, wrong = list[str](), list[str]()

    def compared(function: Any, arguments: dict[str, Any]) -> Any:
        found = shortcut(function, arguments)
        if found is not None:
            taken.append(str(function))
            if laid(found) != laid(function(**arguments)):
                wrong.append(f"{function}: {laid(found)}")
        return found

    monkeypatch.setattr(follow, "shortcut", compared)
    proof = prove(net.model(), net.loss, net.example())
    assert taken
    assert not wrong
    monkeypatch.setattr(follow, "shortcut", lambda *_: None)
    assert proof == prove(net.model(), net.loss, net.example())
