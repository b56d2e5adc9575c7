"""The plain loop over a DataLoader, timed: STEPS WORKERS OUT. Writes the seconds of every step to OUT at its end."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from pictures import program
from torch.utils.data import DataLoader


def main() -> None:
    """Train, and write each step's seconds, the wait for its batch included."""
    steps, workers, out = sys.argv[1:]
    mine = program()
    torch.set_num_threads(1)
    torch.manual_seed(mine.seed)
    model = mine.model()
    optimizer = mine.optimizer(list(model.parameters()))
    given: dict[str, Any] = {"num_workers": int(workers), "persistent_workers": int(workers) > 0}
    batches = _endless(DataLoader(mine.train_data(), mine.batch_size, shuffle=True, **given))
    seconds, began = [], time.perf_counter()
    for _ in range(int(steps)):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = mine.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        now = time.perf_counter()
        seconds.append(now - began)
        began = now
    Path(out).write_text(json.dumps(seconds))


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


if __name__ == "__main__":
    main()
