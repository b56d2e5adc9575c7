"""A program of these benchmarks under DistributedDataParallel and TraceML; started once per node by `nfold emulate`.

With `--node` it is what runs on the node: it starts TraceML, which starts this script again as the node's rank.
"""

import argparse
import os
import sys
from pathlib import Path

PORT = "29777"


def on_node(arguments: list[str], logs: str) -> None:
    """Become TraceML's launcher for this node; node 0 collects."""
    rank, first = os.environ["RANK"], os.environ["MASTER_ADDR"]
    launch = ("--nnodes", os.environ["WORLD_SIZE"], "--node-rank", rank, "--master-addr", first)
    collect = ("--aggregator-host", first, "--aggregator-bind-host", "0.0.0.0", "--aggregator-port", PORT)
    said = ("--mode", "summary", "--logs-dir", logs, "--run-name", "run", "--finalize-timeout-sec", "60")
    traceml = str(Path(sys.executable).with_name("traceml"))
    os.execv(traceml, [traceml, "run", *said, *launch, *collect, __file__, "--args", *arguments])


def train(program_name: str, steps: int) -> None:
    """Train as a user of both would write it."""
    import torch
    import traceml_ai
    from torch import distributed, nn
    from torch.utils.data import DataLoader, DistributedSampler

    from nfold.program import ProgramSource

    torch.set_num_threads(1)
    traceml_ai.init(mode="auto")
    program = ProgramSource.parse(program_name).load()
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(program.model())
    optimizer = program.optimizer(model.parameters())
    data = program.train_data()
    size = max(1, program.batch_size // distributed.get_world_size())
    loader = DataLoader(data, size, sampler=DistributedSampler(data), drop_last=True)
    left = steps
    while left:
        for inputs, targets in loader:
            with traceml_ai.trace_step(model):
                optimizer.zero_grad()
                program.loss(model(inputs), targets).backward()
                optimizer.step()
            left -= 1
            if not left:
                break
    distributed.destroy_process_group()


def main() -> None:
    """Start TraceML on a node, or train."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("program", help="FILE.py:function")
    options.add_argument("--steps", type=int, required=True)
    options.add_argument("--node", metavar="LOGS", help="start TraceML, with its logs there")
    given = options.parse_args()
    if given.node:
        on_node([given.program, "--steps", str(given.steps)], given.node)
    train(given.program, given.steps)


if __name__ == "__main__":
    main()
