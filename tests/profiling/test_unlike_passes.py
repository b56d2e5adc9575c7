"""Programs whose passes are not alike: by what the ones before left, or by what the first one makes."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nfold.errors import ProgramError
from nfold.profiling import profile_program
from nfold.program import Program

BATCH = 8
DATA = [(torch.full((6,), float(index % 7)), index % 4) for index in range(32)]


def profile(model: Callable[[], nn.Module]) -> str:
    """Return why the batch cannot be cut."""
    program = Program(
        model=model,
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        train_data=lambda: DATA,
        batch_size=BATCH,
    )
    return profile_program(program, chunk_sizes=(BATCH,), thread_counts=(1,), budget_s=0.01)[0].indivisible


class Queue(nn.Module):
    """Contrasts with what it has kept of the batches before, of which as many must fit as there are places."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("kept", torch.zeros(2 * BATCH, 4))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x)
        similar = out @ self.kept.clone().t()
        begin, end = int(self.place), int(self.place) + len(x)
        self.kept[begin:end] = out.detach()
        self.place.fill_(end % len(self.kept))
        return similar


def test_each_measured_pass_finds_the_buffers_of_the_beginning() -> None:
    assert profile(Queue).startswith("forward changes kept, place")


class MakesLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.first(x)
        self.last = nn.Linear(out.shape[1], 4) if self.last is None else self.last
        return self.last(out)


class MakesBuffer(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "scale"):
            self.register_buffer("scale", torch.ones(x.shape[1]))
        return super().forward(x * self.scale)


class FillsPlace(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 4)
        self.register_buffer("scale", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = torch.ones(x.shape[1]) if self.scale is None else self.scale
        return super().forward(x * self.scale)


@pytest.mark.parametrize(
    ("model", "name"), [(MakesLayer, "last.weight"), (lambda: MakesBuffer(6, 4), "scale"), (FillsPlace, "scale")]
)
def test_what_forward_makes_at_its_first_call_is_refused(model: Callable[[], nn.Module], name: str) -> None:
    with pytest.raises(ProgramError, match=f"makes {name}.* when it is called first.* with its shape, instead of None"):
        profile(model)
