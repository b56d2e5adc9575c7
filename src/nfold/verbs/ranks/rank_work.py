"""What a rank's process does once it has torch: its worker, with all that it works with."""

import argparse
import gc
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from nfold.cache import ReadRecorder, Store
from nfold.launch.fork_server import ForkServer
from nfold.machine.heap import keep_freed
from nfold.machine.user_folders import cache_folder
from nfold.profiling.recall import Recall
from nfold.program import Program, ProgramSource
from nfold.runtime.control.channel import ControlChannel
from nfold.runtime.control.orders import Orders
from nfold.runtime.data.loader_process import read_for_rank
from nfold.runtime.data.loaders import LoaderPool
from nfold.runtime.rank.heartbeat import Heartbeat, WatchedWiring
from nfold.runtime.rank.rank_tools import Wiring
from nfold.runtime.rank.worker import Worker
from nfold.verbs.ranks.toolbox import Toolbox


@cache
def the_recorder() -> ReadRecorder:
    """Return what notes what the program reads: one for a process and its copies."""
    return ReadRecorder()


def worker_of(
    arguments: argparse.Namespace,
    channel: ControlChannel,
    orders: Orders,
    heartbeat: Heartbeat,
    wire: Callable[[], Wiring],
) -> Worker:
    """Return the worker of a rank.

    Args:
        arguments: of its command line.
        channel: to the coordinator.
        orders: that come by it.
        heartbeat: is told of its connections and tasks.
        wire: makes the ways to other ranks.
    """
    source = ProgramSource(path=Path(arguments.script), function=arguments.function)
    # Only until here nothing of the user's runs in this process: its threads are ours and hold no lock for long.
    loader_pool = LoaderPool(ForkServer("nfold-loader", partial(read_for_rank, source)))
    keep_freed()
    worker = Worker(
        arguments.member,
        channel,
        orders,
        lambda: _load(source),
        WatchedWiring(wire(), heartbeat),
        Toolbox(recall=Recall(str(source), Store(cache_folder()), the_recorder())),
        script=source.path,
        loader_pool=loader_pool,
        owns_process=True,
    )
    heartbeat.watch_tasks(worker.stall)
    return worker


def _load(source: ProgramSource) -> Program:
    """Load the program; what is there by now is never garbage, and what comes is looked through as usual."""
    try:
        return source.load()
    finally:
        gc.freeze()
        gc.enable()
