"""A program of nfold under DistributedDataParallel over Gloo, started by torchrun: SCRIPT[:FUNCTION] BEGUN.

Writes the file BEGUN after its first step, and ends.
"""

import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler

from nfold.program import ProgramSource


def main() -> None:
    """Train one step. Rank, world size and addresses come from the environment."""
    script, begun = sys.argv[1:]
    distributed.init_process_group("gloo")
    program = ProgramSource.parse(script).load()
    torch.manual_seed(program.seed)
    model = nn.parallel.DistributedDataParallel(program.model())
    optimizer = program.optimizer(list(model.parameters()))
    data = program.train_data()
    size = program.batch_size // distributed.get_world_size()
    inputs, targets = next(iter(DataLoader(data, size, sampler=DistributedSampler(data))))
    optimizer.zero_grad()
    program.loss(model(inputs), targets).backward()
    optimizer.step()
    distributed.barrier()
    if distributed.get_rank() == 0:
        Path(begun).write_text("begun", encoding="utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
