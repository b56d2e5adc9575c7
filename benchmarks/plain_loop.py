"""The plain PyTorch loop, timed: SCRIPT STEPS THREADS OUT [WORKERS]. Writes the seconds of each step to OUT at its end.

WORKERS processes of the DataLoader read for it; none unless given.
"""

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
    script, steps, threads, out, *more = sys.argv[1:]
    workers = int(more[0]) if more else 0
    program = ProgramSource.parse(script).load()
    torch.set_num_threads(int(threads))
    torch.manual_seed(program.seed)
    model = program.model()
    optimizer = program.optimizer(list(model.parameters()))
    given: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    batches = _endless(DataLoader(program.train_data(), program.batch_size, shuffle=True, **given))
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
