"""A program that goes wrong in the way that FAULT names, on the third of four ranks; also as a plain DDP script."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

FAULT = os.environ.get("FAULT", "")
FAULTY_RANK, FAULTY_STEP, SAMPLES, BATCH = 2, 30, 960, 32
COMMAND = Path("/proc/self/cmdline").read_text(encoding="utf-8").split("\0")
RANK = int(COMMAND[COMMAND.index("--member") + 1]) if "--member" in COMMAND else int(os.environ.get("RANK", "0"))
IS_FAULTY = RANK == FAULTY_RANK

if FAULT == "missing module" and IS_FAULTY:
    import a_module_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401
if FAULT == "exit at import" and IS_FAULTY:
    print("licence server not reached", flush=True)
    sys.exit(3)


class Items(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples, one of which may be broken."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if FAULT == "broken item" and index == SAMPLES // 2:
            raise OSError(f"image {index} is truncated")
        if FAULT == "label out of range" and index == SAMPLES // 2:
            return torch.full((8,), index / SAMPLES), torch.tensor(7)
        if FAULT == "no number" and index == SAMPLES // 2:
            return torch.full((8,), torch.nan), torch.tensor(0)
        return torch.full((8,), index / SAMPLES), torch.tensor(index % 3)


class Net(nn.Module):
    """A small net that may fail in a later step."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if IS_FAULTY and Sgd.steps_done >= FAULTY_STEP:
            go_wrong()
        return self.body(inputs)


def go_wrong() -> None:
    """Do what FAULT names, in the middle of a step."""
    if FAULT == "error in forward":
        raise ValueError("these weights are cursed")
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "segmentation fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "exit":
        os._exit(7)
    if FAULT == "out of memory":
        torch.empty(1 << 50)
    if FAULT == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if FAULT == "host lost":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)


class Sgd(torch.optim.SGD):
    """Counts its steps."""

    steps_done = 0

    def step(self, closure=None):  # type: ignore[no-untyped-def]
        """Take a step."""
        Sgd.steps_done += 1
        return super().step(closure)


def program():  # type: ignore[no-untyped-def]
    """What nfold trains."""
    import nfold

    return nfold.Program(
        model=Net,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: Sgd(params, lr=0.1),
        train_data=Items,
        batch_size=BATCH,
        chunks=4,
        epochs=20,
    )


def main() -> None:
    """What torchrun starts."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler

    dist.init_process_group("gloo")
    model, items = DistributedDataParallel(Net()), Items()
    optimizer = Sgd(model.parameters(), lr=0.1)
    for _ in range(20):
        for inputs, targets in DataLoader(items, BATCH // 4, sampler=DistributedSampler(items)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
