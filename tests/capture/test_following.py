"""Ordinary Python in forward is followed where sizes decide, and never where values do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cutting import assert_equal, play
from probes import Base
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from zoo import Net, rows

from nfold.capture.capture import capture, recapture
from nfold.capture.cutting.captured import Captured


def probe(between: Callable[[Any, torch.Tensor], torch.Tensor]) -> type[nn.Module]:
    """Return a probe that computes something between two layers."""
    return type(between.__name__, (Base,), {"between": between})


def length_of_batch(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(len(x), 12, dtype=x.dtype) / len(x)


def loop_over_sizes(self: Any, x: torch.Tensor) -> torch.Tensor:
    count, features = x.shape
    assert features == 12, f"expected 12 features, got {x.shape}"
    assert count == len(x) > 0
    return torch.stack([x[:, index] * (index + 1) for index in range(int(x.shape[1]))], 1)


def packed(self: Any, x: torch.Tensor) -> torch.Tensor:
    lengths = (x[:, 0] > 0).long() + 2
    rows = pack_padded_sequence(x.view(-1, 3, 4), lengths.cpu(), batch_first=True, enforce_sorted=False)
    padded = pad_packed_sequence(rows, batch_first=True)[0]
    return padded.sum(1).repeat(1, 3)


def number_of_a_value(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * x.detach().abs().max().item()


def looked_up_by_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * {4: 2.0, 12: 3.0}.get(x.shape[1], 4.0) if x.shape[1] in {12} else x


def made_on_the_spot(self: Any, x: torch.Tensor) -> torch.Tensor:
    return nn.Hardtanh(-0.5, 0.5)(x) + nn.Sequential(nn.Tanh(), nn.Flatten())(x)


FOLLOWED = [made_on_the_spot, looked_up_by_size, length_of_batch, loop_over_sizes, packed, number_of_a_value]


def branch_on_samples(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 1 else x


def branch_on_selected(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x > -1e9).nonzero().shape[1] + x[x.sum(1) > -1e9].shape[0] > 4 else x


def decision_that_export_proves(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x > -1e9).nonzero().shape[1] + x[x.sum(1) > -1e9].shape[0] > 1 else x


def number_in_python(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * sum(range(int(x.detach().abs().sum().item())))


def looked_up_by_value(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * {12345.0: 2.0}.get(x.detach().sum().item(), 3.0)


HELD = {
    looked_up_by_value: "decides on the values of a tensor",
    branch_on_samples: "decides on the number of samples in a batch",
    branch_on_selected: "decides on a size that the values of a tensor decide",
    number_in_python: "decides on the values of a tensor",
}


def captured(between: Callable[[Any, torch.Tensor], torch.Tensor]) -> tuple[Captured, Net]:
    net = Net(probe(between), rows)
    return capture(net.model(), net.loss, net.example(), rebuild=net.model), net


@pytest.mark.parametrize(
    ("between", "method"),
    [*((each, "fx") for each in FOLLOWED), (decision_that_export_proves, "export")],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_followed(between: Callable[[Any, torch.Tensor], torch.Tensor], method: str) -> None:
    found, net = captured(between)
    assert (found.graph.capture, found.graph.notes) == (method, ())
    assert len(found.graph.operators) > 3
    for size in (1, 6):
        expected_from, batch = net.model(), net.example().batch(size, 9)
        expected_from.load_state_dict(found.model.state_dict())
        loss = net.loss(expected_from(batch[0]), batch[1])
        loss.backward()
        expected = {"loss": loss.detach()} | {name: each.grad for name, each in expected_from.named_parameters()}
        assert_equal(play(found, [[each.name] for each in found.graph.operators], batch), expected)
    again = recapture(net.model(), net.loss, net.example(), found.graph)
    assert again.graph == found.graph


@pytest.mark.parametrize("between", HELD, ids=lambda between: between.__name__)
def test_a_line_that_another_batch_would_decide_otherwise_is_one_operator_and_named(
    between: Callable[[Any, torch.Tensor], torch.Tensor],
) -> None:
    graph = captured(between)[0].graph
    line = f"test_following.py:{between.__code__.co_firstlineno + 1}"
    assert [operator.name for operator in graph.operators] == ["first", line, "last", "loss"]
    (note,) = (note for note in graph.notes if note.startswith(f"{line} is one operator"))
    assert f"({line}) {HELD[between]}" in note
    assert not any(word in " ".join(graph.notes) for word in ("fx", "Proxy", "TORCH_LOGS", "cuda"))


def test_a_compiled_model_is_cut_as_the_module_that_was_compiled() -> None:
    net = Net(probe(loop_over_sizes), rows)
    compiled = torch.compile(net.model(), backend="eager")
    assert isinstance(compiled, nn.Module)
    found = capture(compiled, net.loss, net.example())
    assert (found.graph.capture, len(found.graph.operators) > 3) == ("fx", True)
    plain, batch = net.model(), net.example().batch(6, 9)
    loss = net.loss(plain(batch[0]), batch[1])
    loss.backward()
    expected = {"loss": loss.detach()} | {f"_orig_mod.{name}": each.grad for name, each in plain.named_parameters()}
    assert_equal(play(found, [[each.name] for each in found.graph.operators], batch), expected)
