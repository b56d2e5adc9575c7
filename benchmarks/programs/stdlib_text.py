"""A language model of characters, on the source of Python's own standard library: real text that every machine has."""

import sysconfig
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold

LENGTH = 48
"""Characters that the model sees at once."""
NUM_TRAIN, NUM_TEST = 4096, 256
WIDTH, HEADS, LAYERS = 96, 4, 3
FILES = ("ast", "argparse", "dataclasses", "datetime", "difflib", "inspect", "pathlib", "subprocess", "threading")
CHARACTERS = 128
"""ASCII; others are left out."""


class Block(nn.Module):
    """Attention to what came before, then a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.mix(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind()
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class CharacterModel(nn.Module):
    """Says of every character what comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.characters(text) + self.positions.weight
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


@cache
def text() -> torch.Tensor:
    """Return the source of some modules, one number a character."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    source = "".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in FILES)
    return torch.tensor(list(source.encode("ascii", errors="ignore")), dtype=torch.int64)


def pieces(first: int, count: int) -> TensorDataset:
    """Return pieces of the text, evenly apart, and what follows each of their characters."""
    whole = text()
    starts = torch.linspace(0, len(whole) - LENGTH - 2, NUM_TRAIN + NUM_TEST).long()
    order = torch.randperm(len(starts), generator=torch.Generator().manual_seed(0))
    chosen = starts[order[first : first + count]]
    rows = torch.stack([whole[start : start + LENGTH + 1] for start in chosen.tolist()])
    return TensorDataset(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def load_train() -> TensorDataset:
    """Return the pieces to learn from."""
    return pieces(0, NUM_TRAIN)


def load_test() -> TensorDataset:
    """Return the others."""
    return pieces(NUM_TRAIN, NUM_TEST)


def program() -> nfold.Program:
    """Return the program."""
    return nfold.Program(
        model=CharacterModel,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.AdamW(params, lr=2e-3),
        train_data=load_train,
        test_data=load_test,
        batch_size=32,
        epochs=3,
        seed=0,
    )
