"""One of the networks under DistributedDataParallel over Gloo; started once per node by `nfold emulate`.

Rank 0 prints the median seconds of a step as its last line.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed.nn  # noqa: F401 - DDP would import it within the group, whose threads it then keeps
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from nets32 import BATCH_SIZES, LEARNING_RATE, MOMENTUM, NETS, load_train

WARM_UP = 2


def send_bf16(group: object, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Compress as torch's own hook does, which under its own name is refused without NCCL."""
    return bf16_compress_hook(group, bucket)


def main() -> None:
    """Train for some steps. Rank, world size and addresses come from the environment."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("net", choices=NETS)
    options.add_argument("--steps", type=int, default=6)
    options.add_argument("--bf16", action="store_true", help="send gradients as bfloat16")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(NETS[chosen.net]())
    if chosen.bf16:
        model.register_comm_hook(None, send_bf16)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    data = load_train()
    size = BATCH_SIZES[chosen.net] // distributed.get_world_size()
    loader = DataLoader(data, size, sampler=DistributedSampler(data), drop_last=True)
    steps_s: list[float] = []
    for inputs, targets in loader:
        began_s = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        steps_s.append(time.perf_counter() - began_s)
        if len(steps_s) == WARM_UP + chosen.steps:
            break
    if distributed.get_rank() == 0:
        print(median(steps_s[WARM_UP:]))
    distributed.barrier()  # a group destroyed while another rank still uses it may hang in joining its threads
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
