"""One of the networks under torch.distributed.pipelining, 1F1B over Gloo; started once per node by `nfold emulate`.

The blocks are split where --split says, as a person would write it down. Rank 0 prints the median seconds of a step as
its last line.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from nets32 import BATCH_SIZES, LEARNING_RATE, MOMENTUM, NETS, load_train

WARM_UP = 2


def main() -> None:
    """Train for some steps. Rank, world size and addresses come from the environment."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("net", choices=NETS)
    options.add_argument("--split", required=True, help="first block of each stage but the first: 3,5,6")
    options.add_argument("--chunks", type=int, default=8)
    options.add_argument("--steps", type=int, default=6)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, stages = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    blocks = list(NETS[chosen.net]())
    bounds = [0, *map(int, chosen.split.split(",")), len(blocks)]
    part = nn.Sequential(*blocks[bounds[rank] : bounds[rank + 1]])
    stage = PipelineStage(part, rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, chosen.chunks, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(part.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loader = DataLoader(load_train(), BATCH_SIZES[chosen.net], drop_last=True)
    steps_s: list[float] = []
    for inputs, targets in loader:
        began_s = time.perf_counter()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        elif rank == stages - 1:
            schedule.step(target=targets, losses=[])
        else:
            schedule.step()
        optimizer.step()
        steps_s.append(time.perf_counter() - began_s)
        if len(steps_s) == WARM_UP + chosen.steps:
            break
    if rank == 0:
        print(median(steps_s[WARM_UP:]))
    distributed.barrier()  # a group destroyed while another rank still uses it may hang in joining its threads
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
