"""A plain torch.distributed program, as people have them: nothing in it knows of nfold."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 4

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(STEPS):
    torch.manual_seed(100 * dist.get_rank() + step)
    optimizer.zero_grad()
    model(torch.randn(8, 256)).square().mean().backward()
    optimizer.step()
print(f"{os.environ['NFOLD_NODE']} {dist.get_world_size()} {model.module.weight.sum().item():.6f}")
dist.destroy_process_group()
