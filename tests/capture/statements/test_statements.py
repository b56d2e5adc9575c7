"""Statements that decide on values stay whole, the program is cut before and after them, and computes what it did."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cutting import assert_equal, play
from torch import nn
from torch.nn import functional as F

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture, recapture
from nfold.capture.cutting.captured import Captured
from nfold.errors import ProgramError

RARE = 50
"""Batches from this one on hold large values, which no trial has."""


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.other, self.last = (nn.Linear(6, 6) for _ in range(4))
        self.limit, self.buffered = 3.0, nn.Buffer(torch.ones(6))
        self.layers = nn.ModuleList([self.inner, self.other])
        self.seen: list[int] = []

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > self.limit:
            x = x / x.abs().max()
        return x * self.buffered

    def both(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if x.abs().max() > 3:
            return x / 2, self.inner(x)
        return x, self.inner(x)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x / 2 if x.abs().max() > 3 else x


class Halved(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.abs().max() > 3:
            x = x / 2
        return self.last(torch.tanh(x))


class InPlace(Base):
    """Another name of the tensor sees the change."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        y = x.view(-1, 6)
        if x.detach().abs().max() > 3:
            x *= 0.5
        return self.last(self.inner(x) + y)


class Loop(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, steps = self.first(x), 0
        while x.norm() > 4:
            x, steps = x * 0.7, steps + 1
        return self.last(self.inner(x) * (steps + 1))


class Counts(Base):
    """A counter is no tensor that is written to, though the loop may give the input back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = 0
        while x.norm() > 4:
            x = x * 0.7
            steps += 1
        return self.last(self.inner(self.first(x)) * (steps + 1))


class Broken(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
            if x.abs().max() > 3:
                break
        return self.last(x)


class Returns(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(self.first(x))
        if x.abs().max() > 3:
            return self.last(x * 2)
        x = torch.tanh(x)
        return self.last(x)


class Chooses(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.inner(x) if x.sum() > 0 else self.inner(-x)
        return self.last(torch.relu(x))


class ByMethod(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.scaled(self.inner(self.scaled(self.first(x)))))


class ByFunction(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(scaled(self.inner(scaled(self.first(x)))))


class Pair(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.both(self.first(x))
        return self.last(a + torch.tanh(b))


class InLoop(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = torch.tanh(layer(x)) if x.abs().max() > 3 else layer(x)
        return self.last(x)


class NoGradient(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        with torch.no_grad():
            factor = x.abs().max()
            if factor > 3:
                factor = factor * 2
            factor = factor + 1
        return self.last(self.inner(x) / factor)


class Checks(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        print(f"{x.mean().item():.1f}", end="")
        return self.last(self.inner(x))


class Random(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(self.first(x), 0.5)
        if x.abs().max() > 3:
            x = F.dropout(x, 0.5)
        return self.last(F.dropout(self.inner(x), 0.5))


class Closure(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        power = 2

        def cut(y: torch.Tensor) -> torch.Tensor:
            return y**power

        x = self.first(x)
        if x.abs().max() > 3:
            x = x / power
        return self.last(cut(self.inner(x)))


class Gated(Base):
    """Its sizes are read after the statement."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.abs().max() > 3:
            x = torch.cat([x, x])[: len(x)]
        count, width = x.shape
        return self.last(self.inner(x.view(count * width // 6, 6)) / count)


class OneName(Base):
    """Only for large values it is another name of x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(self.first(x)) * 4
        y = x if x.max() > 3.5 else x * 0.5
        z = x * 1.0
        y += 1
        return self.last(self.inner(x) + y + z)


class OneTuple(Base):
    def single(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x / 2,) if x.abs().max() > 3 else (x,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (x,) = self.single(self.first(x))
        return self.last(self.inner(x))


class Helped(Base):
    """Variables of the branch are its own, whatever they are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            if x.abs().max() > 3:
                scale = x.abs().max()
                x = x / scale
            else:
                count = 3
                x = x / count
            x = layer(x)
        return self.last(x)


CUT = [
    Halved,
    InPlace,
    Loop,
    Counts,
    Broken,
    Returns,
    Chooses,
    ByMethod,
    ByFunction,
    Pair,
    InLoop,
    NoGradient,
    Checks,
    Random,
]
CUT += [Closure, Gated, OneName, OneTuple, Helped]


class Appends(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.first(x)]
        if parts[0].abs().max() > 3:
            parts.append(parts[0] / 2)
        return self.last(self.inner(sum(parts)))


class Collects(Base):
    """By another name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = {"x": self.first(x)}
        if found["x"].abs().max() > 3:
            same = found
            same["x"] = same["x"] / 2
        return self.last(self.inner(found["x"]))


class Remembers(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.abs().max() > 3:
            self.seen.append(1)
            x = x * 0.5
        return self.last(self.inner(x))


class Writes(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.abs().max() > 3:
            self.buffered.mul_(0.5)
        return self.last(self.inner(x) * self.buffered)


class Detached(Base):
    """What comes later decides on it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.abs().max() > 3:
            x = x.detach()
        x = x * 2 if x.requires_grad else x * 3
        return self.last(self.inner(x))


WHOLE = {
    Appends: "it uses parts, a list",
    Remembers: "it uses .seen, a list",
    Writes: "it writes to self",
    Detached: "it uses x.requires_grad",
}


class Absent(Base):
    """What follows was only followed for nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, extra = self.first(x), None
        if x.abs().max() > 3:
            extra = x / 2
        if extra is not None:
            x = x + extra
        return self.last(self.inner(x))


def batch(size: int, which: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(which)
    x = torch.rand(size, 6, generator=draw, dtype=torch.float64) - 0.5
    return x * (60 if which >= RARE else 1), torch.arange(size) % 6


def captured(net: type[nn.Module]) -> tuple[Captured, Callable[[], nn.Module]]:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return net().double().train()

    return capture(model(), F.cross_entropy, Example(make=batch), rebuild=model), model


def eager(model: nn.Module, examples: Any) -> dict[str, Any]:
    loss = F.cross_entropy(model(examples[0]), examples[1])
    loss.backward()
    return {"loss": loss.detach()} | {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.parametrize("net", CUT, ids=lambda net: net.__name__)
def test_cut_before_and_after(net: type[nn.Module]) -> None:
    found, model = captured(net)
    names = [[operator.name] for operator in found.graph.operators]
    assert len(names) > 2
    assert all(name.startswith("test_statements.py:") for name in found.graph.whole)
    assert found.graph.whole
    text = " ".join(found.graph.notes)
    assert f"{found.graph.whole[0]} " in text
    assert not any(word in text for word in ("fx", "Proxy", "export"))
    for which in (1, RARE):
        if net is not Random:  # it draws other numbers
            assert_equal(play(found, names, batch(6, which)), eager(model(), batch(6, which)))
    again = recapture(model(), F.cross_entropy, Example(make=batch), found.graph)
    assert again.graph == found.graph


@pytest.mark.parametrize("net", WHOLE, ids=lambda net: net.__name__)
def test_what_statements_leave_behind_keeps_them_in_their_module(net: type[nn.Module]) -> None:
    found, model = captured(net)
    assert found.graph.whole == ("",)
    assert f", and is no operator of its own, since {WHOLE[net]}" in found.graph.notes[0]
    assert_equal(play(found, [["model"]], batch(6, RARE)), eager(model(), batch(6, RARE)))


def test_a_dict_that_statements_change_by_another_name_ends_the_run() -> None:
    found, model = captured(Collects)
    names = [[operator.name] for operator in found.graph.operators]
    assert_equal(play(found, names, batch(6, 1)), eager(model(), batch(6, 1)))
    with pytest.raises(ProgramError, match="change a dict that others use"):
        play(found, names, batch(6, RARE))


def test_a_result_of_another_kind_than_in_trials_is_refused() -> None:
    found, model = captured(Absent)
    names = [[operator.name] for operator in found.graph.operators]
    assert_equal(play(found, names, batch(6, 1)), eager(model(), batch(6, 1)))
    with pytest.raises(
        ProgramError, match=r"test_statements.py:\d+-\d+ gives extra as float64\[6, 6\], and gave NoneT"
    ):
        play(found, names, batch(6, RARE))
