"""Small programs in float64, in the styles that people write."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from nfold.program import Program

NUM_SAMPLES, CLASSES = 44, 4


def images() -> Dataset:
    """Random 2-channel images of 8 x 8 with labels."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(NUM_SAMPLES, 2, 8, 8, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(0, CLASSES, (NUM_SAMPLES,), generator=generator))


class Noisy(Dataset):
    """The same images, some of them with noise that is drawn when they are read."""

    def __init__(self, draws: Callable[[int, int], bool] = lambda index, target: True) -> None:
        """`draws` says of an index and its label whether it has noise."""
        self.clean, self.draws = images(), draws

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, target = self.clean[index]
        return image + (torch.randn_like(image) if self.draws(index, int(target)) else 0), target


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.deeper = nn.Conv2d(4, 6, 3, stride=2)
        self.fc = nn.Linear(54, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv(x), inplace=True)
        return self.fc(torch.flatten(F.relu(self.deeper(x)), 1))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.norm_a = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.b, self.norm_b = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm_a(self.a(x)))
        out = self.norm_b(self.b(out))
        out += x
        return F.relu(out)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5, momentum=None)
        self.one, self.two = Block(5), Block(5)
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(self.one(F.relu(self.norm(self.stem(x)))))
        return self.fc(x.mean(dim=(2, 3)))


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(128, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.dropout(torch.tanh(self.body(x)), 0.3, self.training))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(128, 12)
        self.middle = nn.Linear(12, 12)
        self.decode = nn.Linear(12, 128)
        self.decode.weight = nn.Parameter(self.encode.weight.t().contiguous().t())
        self.again = nn.Linear(12, 12)
        self.again.weight = self.middle.weight
        self.fc = nn.Linear(128, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.middle(torch.tanh(self.encode(x.flatten(1)))))
        hidden = torch.tanh(self.again(hidden))
        return self.fc(torch.tanh(F.linear(hidden, self.encode.weight.t())))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.extra = nn.Linear(128, CLASSES), nn.Linear(3, 3)
        self.frozen = nn.Linear(128, 128)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.tanh(self.frozen(x.flatten(1))))


def double(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().double()


def sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def adamw(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-2)


NETS = {"plain": Plain, "residual": Residual, "dropping": Dropping, "tied": Tied, "unused": Unused}


def program(net: str, optimizer: Callable = sgd, batch_size: int = 16, seed: int = 3) -> Program:
    """A float64 program over 44 samples: two full batches of 16 and one of 12 an epoch."""
    return Program(
        model=double(NETS[net]),
        loss=F.cross_entropy,
        optimizer=optimizer,
        train_data=images,
        batch_size=batch_size,
        epochs=2,
        seed=seed,
    )
