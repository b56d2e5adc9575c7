"""A program of nfold in a plain loop whose gradients MPI sums: SCRIPT[:FUNCTION] STEPS. Rank 0 prints s per step."""

import statistics
import sys
import time

import torch
from mpi4py import MPI
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from nfold.program import ProgramSource

UNCOUNTED = 2
"""Steps at the beginning."""


def main() -> None:
    """Train for some steps on each rank's share of every batch."""
    script, steps = sys.argv[1:]
    world = MPI.COMM_WORLD
    program = ProgramSource.parse(script).load()
    torch.manual_seed(program.seed)
    model = program.model()
    optimizer = program.optimizer(list(model.parameters()))
    data, size = program.train_data(), program.batch_size // world.size
    inputs, targets = (torch.stack(each) for each in zip(*(data[index] for index in range(size)), strict=True))
    seconds = []
    for _ in range(int(steps)):
        world.Barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        program.loss(model(inputs), targets).backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        flat = parameters_to_vector(gradients).div_(world.size)
        world.Allreduce(MPI.IN_PLACE, flat.numpy())
        vector_to_parameters(flat, gradients)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    if world.rank == 0:
        print(statistics.median(seconds[UNCOUNTED:]), flush=True)


if __name__ == "__main__":
    main()
