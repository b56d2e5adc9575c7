"""Programs on which tracers are silently wrong, or refuse: each must be captured exactly or kept whole."""

import random
from collections import deque
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F


class Base(nn.Module):
    """Two layers for a probe to stand between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.between(self.first(x)))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class NoGradRegion(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = torch.sigmoid(x * 2)
            scale = scale + 1
        return x * scale


class AutocastRegion(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, self.first.weight)
        return x + y.to(x.dtype)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2.0


class CustomFunction(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(x)


class MovingAverage(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(12))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        return x - self.average


class AddedBuffer(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(12))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.detach().mean(0)
        return x + 1.0 * self.total.clone()


class Counter(Base):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x if self.count < 3 else x * 2


class LateCounter(Base):
    """Long after any trial it does something else."""

    def __init__(self) -> None:
        super().__init__()
        self.number = numpy.int64(0)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.number += 1
        return x if self.number < 100 else x * 2


class Schedule:
    def __init__(self) -> None:
        self.calls = 0


class LateSchedule(Base):
    """The same, kept by an object of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = Schedule()

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.schedule.calls += 1
        return x if self.schedule.calls < 100 else x * 2


class LateWindow(Base):
    """The same, by what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.window, self.seen = deque([0], maxlen=200), {0}

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.window.append(self.window[-1] + 1)
        self.seen.add(len(self.seen))
        return x if len(self.window) + len(self.seen) < 100 else x * 2


class Spectral(Base):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(self.first)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class WeightNorm(Base):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(self.first)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class BranchOnValue(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x * 3


class BranchOnSize(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] > 4 else x


class HalvesOfBatch(Base):
    """3 // 2 and 2 // 2 are equal, as if it were a constant."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[0] // 2
        return x + x[:half].mean() - 0.5 * x[half:].mean()


class PairsOfSamples(Base):
    """9 and 4 are on a line, as any two numbers are."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[0] * x.shape[0]
        return x * (x @ x.t()).reshape(count).mean() / count


class OddBatches(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + x.shape[0] % 2)


class LoopOverBatch(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[index] * 2 for index in range(len(x))])


class PythonRandom(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if random.random() < 0.5 else x * 3


class TorchRandomBranch(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.rand(1).item() < 0.5 else x * 3


class NoiseOfBatchSize(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(x.shape[0], 12, dtype=x.dtype)
        mask[:, :4] = 1.0
        return x * mask + torch.rand(x.size(0), 1, dtype=x.dtype)


class BooleanMask(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0
        y[x > 0] = 0.25
        return y + x[x > 0].sum() * 0


class Checkpointed(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        return checkpoint(lambda y: torch.tanh(self.first(y)), x, use_reentrant=False)


class ChangesInput(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x.mul_(2.0)))


class GradientInForward(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        y = (x**2).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return slope


class GradientHook(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0
        y.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        return y * 2 + y.tanh()


class Hooked(nn.Module):
    """Changes the gradient: no tracer goes into it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0
        y.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        return y * 2 + y.tanh()


def halved(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return tuple(each * 0.5 for each in inputs)


class BackwardHooks(Base):
    """On a module that a tracer goes into, and on one that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(12, 12), nn.Tanh())
        self.block.register_full_backward_hook(halved)
        self.last.register_full_backward_hook(halved)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.block(torch.tanh(x)))


class Smooth(nn.Module):
    """Goes into any trace."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * 2


class OfTensors(nn.Module):
    """What a tracer sees here is no tensor, and it goes where no tensor goes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if type(x) is torch.Tensor else x * 3


class WrongInside(Base):
    """A trace goes wrong in two of its modules, in a row and in a list; because of a third it cannot be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Sequential(Smooth(), nn.Sequential(Smooth(), OfTensors()), nn.Sequential(Smooth(), nn.ReLU()))
        self.several = nn.ModuleList([OfTensors(), Smooth(), Hooked()])

    def between(self, x: torch.Tensor) -> torch.Tensor:
        x = self.row(x)
        for module in self.several:
            x = module(x)
        return x


class WrongPastIt(WrongInside):
    """The same, where the row is a namespace that nobody calls."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        for module in (*self.row, *self.several):
            x = module(x)
        return x


class OfPairs(nn.Module):
    """The same, and takes and returns two."""

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = pair
        return x * 2 if type(x) is torch.Tensor else x * 3, y + x


class WrongInRow(Base):
    """Two modules in which a trace goes wrong are one operator, named after the first."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.hooked = OfPairs(), OfPairs(), Hooked()

    def between(self, x: torch.Tensor) -> torch.Tensor:
        x, y = self.two(self.one((x, x)))
        return self.hooked(x + y)


class InstanceCheck(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if isinstance(x, torch.Tensor) else x * 3


class GRULoop(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 12)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros_like(x)
        for part in x.view(-1, 3, 4).unbind(1):
            hidden = self.cell(part, hidden)
        return hidden


class ListedWeights(Base):
    """Weights whose names are numbers, or words of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = nn.ParameterList([torch.eye(12), torch.ones(12)])
        self.named = nn.ParameterDict({"in": torch.ones(12)})

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.listed[0]) * self.listed[1] + self.named["in"]


class Mapped(Base):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: torch.tanh(self.first(row)))(x)


class NormedByFunction(Base):
    """Running statistics in buffers of its own, which a function of torch writes to without counting a version."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("variance", torch.ones(12))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, self.mean, self.variance, training=self.training)


class RareCoin(Base):
    """Lands in none of the trials: only that it is thrown shows."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1) if random.random() < 1e-9 else x
