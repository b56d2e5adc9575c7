"""The plain PyTorch loop, timed: SCRIPT STEPS THREADS OUT. Writes the seconds of every step to OUT at its end."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from nfold.program import ProgramSource


def main() -> None:
    """Train, and write each step's seconds, reading its batch included."""
    script, steps, threads, out = sys.argv[1:]
    program = ProgramSource.parse(script).load()
    torch.set_num_threads(int(threads))
    torch.manual_seed(program.seed)
    model = program.model()
    optimizer = program.optimizer(list(model.parameters()))
    batches = _endless(DataLoader(program.train_data(), program.batch_size, shuffle=True))
    model.train()
    seconds = []
    for _ in range(int(steps)):
        began = time.perf_counter()
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = program.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - began)
        if len(seconds) == 1:
            Path(out).with_suffix(".begun").touch()
    Path(out).write_text(json.dumps(seconds))


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


if __name__ == "__main__":
    main()
