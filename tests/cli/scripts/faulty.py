"""A program that goes wrong in the way that the environment's FAULT names."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

import nfold

FAULT = os.environ.get("FAULT", "")
SAMPLES = 400
COMMAND = Path("/proc/self/cmdline").read_text().split("\0")
RANK = int(COMMAND[COMMAND.index("--member") + 1]) if "--member" in COMMAND else 0
FAULTY_STEP = 30
"""Of rank 1; rank 0 also takes steps when it measures the program."""

if FAULT == "import":
    raise RuntimeError("no licence")
if FAULT == "page":
    raise RuntimeError("".join(f"line {number} of it\n" for number in range(100)))
if FAULT == "exit":
    sys.exit("usage: faulty.py FILE")
if FAULT == "die at import" and RANK == 1:
    Path("fault-time").write_text(repr(time.time()))
    print("no licence was found", flush=True)
    os._exit(3)


class Items(Dataset):
    are_gone = False

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if f"item {index}" == FAULT:
            raise OSError("truncated scan")
        if Items.are_gone:
            raise OSError("the disk is gone")
        if FAULT.removesuffix(", then none") == f"label of item {index}":
            return torch.full((6,), index / SAMPLES), 5
        if f"nan item {index}" == FAULT:
            return torch.full((6,), torch.nan), index % 3
        return torch.full((6,), index / SAMPLES), index % 3


class TogetherItems(Items):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 5 if FAULT == "loss" else 3)

    def forward(self, inputs):
        if FAULT == "forward" and Optimizer.steps_done == FAULTY_STEP - 1 and RANK == 1:
            note_time()
            raise ValueError("this sample is cursed")
        if FAULT == "kill" and Optimizer.steps_done >= FAULTY_STEP - 1 and RANK == 1:
            note_time()
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "hang" and Optimizer.steps_done == FAULTY_STEP - 1 and RANK == 1:
            note_time()
            threading.Event().wait()
        return self.body(inputs)


class Optimizer(torch.optim.SGD):
    steps_done = 0

    def step(self, closure=None):
        Optimizer.steps_done += 1
        return super().step(closure)


def note_time():
    Path("fault-time").write_text(repr(time.time()))


def loss(outputs, targets):
    Items.are_gone = FAULT.endswith("then none") and int(targets.max()) == 5
    if FAULT in ("loss", "nan"):
        return nn.functional.mse_loss(outputs, nn.functional.one_hot(targets, 3).float())
    return nn.functional.cross_entropy(outputs, targets)


def program():
    if FAULT == "program raises":
        return 1 / 0
    return nfold.Program(
        model=Net,
        loss=loss,
        optimizer=lambda params: Optimizer(params, lr=1e15 if FAULT == "nan" else 0.1),
        train_data=lambda: (TogetherItems if "together" in os.environ else Items)(0 if FAULT == "empty" else SAMPLES),
        batch_size={"batch of 0": 0, "batch of 401": 401}.get(FAULT, 16),
        chunks=int(os.environ.get("CHUNKS", "2")),
        epochs=8,
    )


def nothing():
    return None
