"""Steps that cost what they cost whatever they compute: a few samples through many layers."""

from dataclasses import replace

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold

WIDTH, LAYERS, SAMPLES = 384, 24, 480


def make_deep() -> nn.Module:
    """Return many wide layers: 3.5 million weights, that an optimizer with two moments goes over in each step."""
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def load_rows() -> TensorDataset:
    """Return random rows with random targets."""
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(SAMPLES, WIDTH, generator=draw), torch.randn(SAMPLES, WIDTH, generator=draw))


def two_samples() -> nfold.Program:
    """A batch of two: the update outweighs the computing."""
    return nfold.Program(
        model=make_deep,
        loss=nn.functional.mse_loss,
        optimizer=lambda params: torch.optim.AdamW(params, lr=1e-4, foreach=False),
        train_data=load_rows,
        batch_size=2,
        epochs=10,
    )


def three_samples() -> nfold.Program:
    """A batch of three, of an optimizer with one moment whose gradients are clipped."""
    return replace(two_samples(), optimizer=lambda params: torch.optim.RMSprop(params), batch_size=3, clip_norm=1.0)
