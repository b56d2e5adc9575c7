"""Data parallelism by torch.distributed, for `nfold emulate CLUSTER.toml -- python examples/ddp.py`."""

import time

import torch
import torch.distributed.nn  # noqa: F401 - DDP would import it within the group, whose threads it then keeps
from digits import load_train, make_cnn
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler

STEPS = 20


def main() -> None:
    """Train for some steps and say how long one takes. Rank, world size and addresses come from the environment."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(make_cnn())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = load_train()
    loader = DataLoader(data, 128 // distributed.get_world_size(), sampler=DistributedSampler(data))
    batches = iter(loader)
    began_s, steps = time.perf_counter(), 0
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        steps += 1
        if steps == STEPS:
            break
    print(f"{(time.perf_counter() - began_s) / steps * 1e3:.1f} ms a step")
    distributed.barrier()  # a group destroyed while another rank still uses it may hang in joining its threads
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
