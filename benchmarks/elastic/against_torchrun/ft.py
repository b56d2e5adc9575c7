"""The same program by torchft: who is there shares the batch, and who comes is given the state by one of the others."""

import argparse
import json
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

sys.path.insert(0, str(Path(__file__).parent))
from program import BATCH, SAMPLES, Drawn, program


def main() -> None:
    """Train until killed, or told to end; a line for each step, with the time when it was done."""
    options = argparse.ArgumentParser()
    options.add_argument("--told", type=Path, required=True, help="of this host")
    options.add_argument("--lighthouse", required=True, help="its address")
    options.add_argument("--at", required=True, help="the address of this host")
    options.add_argument("--name", required=True, help="of this host")
    options.add_argument("--fewest", type=int, required=True, help="hosts that train")
    given = options.parse_args()
    socket.gethostname = lambda: given.at  # torchft tells others this, as what they shall dial
    from torchft import Manager, Optimizer, ProcessGroupGloo

    told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_end.set())
    mine, data = program(), Drawn()
    torch.manual_seed(0)
    model = mine.model()
    inner = mine.optimizer(model.parameters())

    def take(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = TCPStore(given.at, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=given.fewest,
        load_state_dict=take, state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        # Those who share a step are known before it: each reads its own samples of the batch.
        use_async_quorum=False, init_sync=False, rank=0, world_size=1, store_addr=given.at, store_port=store.port,
        lighthouse_addr=given.lighthouse, replica_id=given.name, hostname=given.at,
    )  # fmt: skip
    optimizer, sums = Optimizer(manager, inner), []
    # Not its DistributedDataParallel: in 0.2.0 who stays ends with an AssertionError when a peer is killed in a sum.
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda each: sums.append(manager.allreduce(each.grad)))
    while not told_to_end.is_set():
        optimizer.zero_grad()  # who takes part is settled here
        step, rank, count = manager.current_step(), manager.participating_rank(), manager.num_participants()
        batch = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))[:BATCH][rank::count]
        samples = [data[index] for index in batch.tolist()]
        loss = mine.loss(model(torch.stack([x for x, _ in samples])), torch.stack([y for _, y in samples]))
        loss.backward()
        while sums:
            sums.pop(0).wait()
        optimizer.step()
        if manager.current_step() > step:  # else somebody was lost, and it is played again
            with given.told.open("a") as told:
                told.write(json.dumps({"step": step + 1, "at": time.time(), "ranks": count}) + "\n")
    manager.shutdown(wait=False)


main()
