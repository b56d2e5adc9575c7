"""The same program under torchrun: who is there shares the batch, and goes on from what was kept."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent))
from program import BATCH, SAMPLES, Drawn, program


def newest(kept: Path, rank: int) -> dict[str, Any] | None:
    """Return the newest state that any node keeps; None: nobody keeps any. By all ranks together."""
    own = torch.load(kept) if kept.exists() else None
    steps: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(steps, -1 if own is None else own["step"])
    holder = max(range(len(steps)), key=lambda each: steps[each])
    if steps[holder] < 0:
        return None
    given = [own if rank == holder else None]
    dist.broadcast_object_list(given, src=holder)
    return given[0]


def main() -> None:
    """Train until killed; a line for each step, with the time when it was done."""
    options = argparse.ArgumentParser()
    options.add_argument("--told", type=Path, required=True, help="of this node")
    options.add_argument("--kept", type=Path, required=True, help="a file of all nodes, or of this one in memory")
    options.add_argument("--every", type=int, required=True, help="steps between two states that are kept")
    options.add_argument("--each-keeps", action="store_true", help="each node keeps the state, not the first one only")
    given = options.parse_args()
    dist.init_process_group("gloo")
    rank, count, mine, data = dist.get_rank(), dist.get_world_size(), program(), Drawn()
    torch.manual_seed(0)
    model = mine.model()
    optimizer = mine.optimizer(model.parameters())
    state, step = newest(given.kept, rank), 0
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    spread = DistributedDataParallel(model)
    while True:
        batch = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))[:BATCH][rank::count]
        samples = [data[index] for index in batch.tolist()]
        loss = mine.loss(spread(torch.stack([x for x, _ in samples])), torch.stack([y for _, y in samples]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        with given.told.open("a") as told:
            told.write(json.dumps({"step": step, "at": time.time(), "ranks": count}) + "\n")
        if step % given.every == 0 and (given.each_keeps or rank == 0):
            whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(whole, half := given.kept.with_suffix(".half"))
            os.replace(half, given.kept)


main()
