"""A network whose parameters are nearly all in two wide layers (as in AlexNet): 1.2 million, little compute."""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from digits32 import batch_size, load_test, load_train


def make_model() -> nn.Module:
    """Return the network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, 768),
        nn.ReLU(),
        nn.Linear(768, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def program() -> nfold.Program:
    """Return the program."""
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9),
        train_data=load_train,
        test_data=load_test,
        batch_size=batch_size(96),
        epochs=10,
    )


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of samples whose largest output is the right one."""
    return (outputs.argmax(1) == targets).float().mean()


def judged() -> nfold.Program:
    """The same, evaluated by its accuracy after each epoch."""
    return replace(program(), metrics={"accuracy": accuracy})


def make_wide_model() -> nn.Module:
    """Return four million parameters that compute next to nothing."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.Linear(1024, 10))


def wide() -> nfold.Program:
    """All bytes, no work: small batches of a wide network."""
    return replace(program(), model=make_wide_model, batch_size=16)


def bytes_alone() -> nfold.Program:
    """The same with the cheapest of updates: a step's work is moving its gradients."""
    return replace(wide(), optimizer=lambda params: torch.optim.SGD(params, lr=0.02), batch_size=12)
