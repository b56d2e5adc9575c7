"""Models whose forward writes to weights: to keep them small, or to let some follow others."""

import copy

import torch
from probes import Base
from torch import nn
from torch.nn import functional as F


class Renormed(nn.Linear):
    """Keeps its rows short. At first they are, and nothing changes."""

    longest = 0.601

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height)
        self.weight.data = 0.6 * F.normalize(self.weight.data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=self.longest)
        return super().forward(x)


class Clamped(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data.clamp_(-0.28, 0.28)
        return F.linear(x, self.weight, self.bias)


class Begun(nn.Linear):
    """Scales its weight by the first batch that it sees."""

    begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.begun:
            self.begun = True
            self.weight.data.mul_(1 / x.detach().std())
        return super().forward(x)


class KeepsItsOwn(Base):
    def __init__(self, kind: type[nn.Linear]) -> None:
        super().__init__()
        self.middle = kind(12, 12)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.middle(torch.tanh(x))


class ClampsAnothers(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.last.weight.clamp_(-0.28, 0.28)
        return torch.tanh(x)


class Teacher(Base):
    """A copy of a layer follows it; as long as both are equal nothing changes."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(12, 12)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.follow()
        return torch.tanh(self.student(x)) + self.teacher(x.detach())

    @torch.no_grad()
    def follow(self) -> None:
        for own, others in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            own.data = own.data * 0.9 + others.data * 0.1


class TeacherInPlace(Teacher):
    @torch.no_grad()
    def follow(self) -> None:
        for own, others in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            own.data.mul_(0.9).add_(others.data, alpha=0.1)


class TiedAndRenormed(Base):
    """An embedding renormed in place whose weight another layer uses, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.back = nn.Embedding(12, 12, max_norm=0.5), nn.Linear(12, 12, bias=False)
        self.back.weight = self.table.weight

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(torch.tanh(x) + self.table(x.detach().argmax(1)))


class RenormedTable(Base):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 12, max_norm=0.5)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) + self.table(x.detach().argmax(1))


def renormed() -> nn.Module:
    return KeepsItsOwn(Renormed)


def clamped() -> nn.Module:
    return KeepsItsOwn(Clamped)


def begun() -> nn.Module:
    return KeepsItsOwn(Begun)


OWN = {renormed: "middle.weight", clamped: "middle.weight", begun: "middle.weight", RenormedTable: "table.weight"}
"""Those that are written to where they are used, and nowhere else."""
ANOTHERS = {
    ClampsAnothers: "last.weight",
    Teacher: "teacher.weight",
    TeacherInPlace: "teacher.weight",
    TiedAndRenormed: "table.weight",
}
