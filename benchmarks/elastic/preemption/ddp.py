"""The program of the soak under torchrun: data parallelism, a checkpoint file every few steps, going on from it."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))
from program import program


def main() -> None:
    """Train, and write down when each step was done."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, required=True)
    options.add_argument("--every", type=int, required=True)
    options.add_argument("--told", type=Path, required=True)
    options.add_argument("--kept", type=Path, required=True)
    given = options.parse_args()
    dist.init_process_group("gloo")
    rank, count, mine = dist.get_rank(), dist.get_world_size(), program()
    torch.manual_seed(0)
    model = mine.model()
    optimizer = mine.optimizer(model.parameters())
    begin = 0
    if given.kept.exists():
        kept = torch.load(given.kept)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        begin = kept["step"]
    spread, data = DistributedDataParallel(model), mine.train_data()
    for step in range(begin, given.steps):
        batch = torch.randperm(len(data), generator=torch.Generator().manual_seed(step))[: mine.batch_size][rank::count]
        samples = [data[index] for index in batch.tolist()]
        loss = mine.loss(spread(torch.stack([x for x, _ in samples])), torch.stack([y for _, y in samples]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            with given.told.open("a") as log:
                log.write(json.dumps({"step": step + 1, "at": time.time()}) + "\n")
            if (step + 1) % given.every == 0:
                whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                torch.save(whole, half := given.kept.with_suffix(".half"))
                os.replace(half, given.kept)


main()
