"""Outputs in classes of the user's or of a library's own."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import Net, rows

from nfold.capture.batches.tree import map_tensors, paths_of, shapes_text, tensors_of
from nfold.capture.capture import capture


class Named(OrderedDict[str, Any]):
    """A dict whose values are attributes, too, as libraries of models return it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


@dataclass(frozen=True)
class Record:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    kind: str = "record"


def named(logits: torch.Tensor, hidden: torch.Tensor) -> Named:
    return Named(logits=logits, hidden=(hidden,))


def record(logits: torch.Tensor, hidden: torch.Tensor) -> Record:
    return Record(logits, (hidden,))


class Returning(nn.Module):
    def __init__(self, kind: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.last, self.kind = nn.Linear(12, 12), nn.Linear(12, 5), kind

    def forward(self, x: torch.Tensor) -> Any:
        hidden = torch.tanh(self.first(x))
        return self.kind(self.last(hidden), hidden)


def logits_loss(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.logits, targets)


@pytest.mark.parametrize("kind", [named, record])
def test_a_structure_keeps_its_class(kind: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    value = kind(torch.ones(2, 3), torch.ones(2))
    other = map_tensors(lambda tensor: tensor * 2, value)
    assert type(other) is type(value)
    assert [tensor.sum().item() for tensor in tensors_of(other)] == [12.0, 4.0]
    assert [tensor.sum().item() for tensor in tensors_of(value)] == [6.0, 2.0]
    assert [path for path, _ in paths_of(value)] == [("logits",), ("hidden", 0)]
    assert "float32[2, 3]" in shapes_text(value)


@pytest.mark.parametrize("kind", [named, record])
def test_a_model_that_returns_it_is_cut(kind: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    net = Net(lambda: Returning(kind), rows, loss=logits_loss)
    graph = capture(net.model(), net.loss, net.example()).graph
    assert graph.capture == "fx"
    assert len(graph.operators) > 2
    assert not graph.indivisible
