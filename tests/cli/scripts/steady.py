"""A program with batch norm, dropout, momentum and tied weights, a module beside it, and something to say."""

from dataclasses import replace

import numbers_of_this_program as numbers
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

import nfold

SAMPLES, FEATURES, HIDDEN = 76, 12, numbers.HIDDEN


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(FEATURES, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.dropout = nn.Dropout(0.25)
        self.outward = nn.Linear(HIDDEN, FEATURES, bias=False)
        self.again = nn.Linear(HIDDEN, FEATURES)
        self.again.weight = self.outward.weight

    def forward(self, inputs):
        hidden = self.dropout(torch.relu(self.norm(self.inward(inputs))))
        return self.outward(hidden) + self.again(hidden)


def load(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(count, FEATURES, generator=generator),
        torch.randint(0, FEATURES, (count,), generator=generator),
    )


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def program():
    print("hello from the program")
    return nfold.Program(
        model=Net,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.005, momentum=0.9),
        train_data=lambda: load(SAMPLES, 1),
        test_data=lambda: load(20, 2),
        metrics={"accuracy": accuracy},
        batch_size=numbers.BATCH_SIZE,
        chunks=4,
        epochs=numbers.EPOCHS,
    )


def no_decay_on_biases(named_parameters):
    pairs = list(named_parameters)
    decayed = [parameter for name, parameter in pairs if not name.endswith("bias")]
    free = [parameter for name, parameter in pairs if name.endswith("bias")]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": free}], lr=0.002)


def elaborate():
    return replace(
        program(),
        optimizer=no_decay_on_biases,
        scheduler=lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=5 * numbers.EPOCHS),
        clip_norm=0.5,
        autocast="bfloat16",
    )
