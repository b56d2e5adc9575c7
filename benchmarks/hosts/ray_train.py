"""A program of nfold under Ray Train, workers on nodes of a Ray: SCRIPT[:FUNCTION] BEGUN ADDRESS WORKERS.

Writes the file BEGUN after its first step, and ends.
"""

import sys
from pathlib import Path
from typing import Any


def work(given: dict[str, Any]) -> None:
    """Train one step, in one of Ray's workers."""
    import torch
    from ray.train.torch import prepare_model
    from torch import distributed
    from torch.utils.data import DataLoader, DistributedSampler

    from nfold.program import ProgramSource

    program = ProgramSource.parse(given["script"]).load()
    torch.manual_seed(program.seed)
    model = prepare_model(program.model())
    optimizer = program.optimizer(list(model.parameters()))
    data = program.train_data()
    size = program.batch_size // distributed.get_world_size()
    inputs, targets = next(iter(DataLoader(data, size, sampler=DistributedSampler(data))))
    optimizer.zero_grad()
    program.loss(model(inputs), targets).backward()
    optimizer.step()
    distributed.barrier()
    if distributed.get_rank() == 0:
        Path(given["begun"]).write_text("begun", encoding="utf-8")


def main() -> None:
    """Ask Ray for workers and wait for them."""
    import ray
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    script, begun, address, workers = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    scaling = ScalingConfig(
        num_workers=int(workers), placement_strategy="STRICT_SPREAD", resources_per_worker={"CPU": 1}
    )
    TorchTrainer(work, train_loop_config={"script": script, "begun": begun}, scaling_config=scaling).fit()


if __name__ == "__main__":
    main()
