"""What a rank gives when others ask for it: the whole model's state, on rank 0, and what the rank itself has used."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from nfold.core.plan import Plan
from nfold.core.trace import RankUsage
from nfold.machine.resident_memory import peak_bytes
from nfold.machine.system_sampler import shared_bytes_of_this_process
from nfold.runtime.asynchronous.asynchronous_replica import AsynchronousReplica
from nfold.runtime.checkpoint.state_collection import ByteRun, Collected, collect
from nfold.runtime.checkpoint.state_file import MODEL_PREFIX, RUN_BYTES, StateHeader
from nfold.runtime.control.channel import PIECE, ControlChannel
from nfold.runtime.rank.evaluation import fill
from nfold.runtime.step.replica import Replica
from nfold.transport.protocol import Transport


def collect_from(
    replica: Replica | AsynchronousReplica,
    transport: Transport,
    tag: int,
    *,
    step: int,
    with_optimizer: bool,
    is_averaged: bool = False,
    told: dict[str, Any] | None = None,
) -> Collected | None:
    """Collect the whole model's state; returns it on rank 0, a piece at a time, and None elsewhere.

    Args:
        replica: this rank's.
        transport: between the ranks.
        tag: counts the gathers of a job.
        step: steps that are done.
        with_optimizer: whether it is to go on from.
        is_averaged: whether it is that of the averaged weights.
        told: what a file that is not says beside its tensors.
    """

    def join(said: list[dict[str, Any]]) -> dict[str, Any] | None:
        joined = replica.join(said, step)
        return joined if with_optimizer else told

    offered = replica.offer(with_optimizer=with_optimizer)
    if is_averaged:
        assert isinstance(replica, Replica), "asynchronous plans average nothing"
        assert replica.averages is not None, "the coordinator knows whether the program averages"
        offered = replica.averages.instead(offered)
    return collect(transport, replica.plan.world_size, tag, offered, join)


def send_file(
    channel: ControlChannel, name: str, collected: Collected | None, build: Callable[[], nn.Module] | None = None
) -> tuple[bool, nn.Module | Exception | None]:
    """Send a state to the coordinator in pieces, if this is rank 0.

    Args:
        channel: to the coordinator.
        name: of the file.
        collected: what it will hold.
        build: makes a module that takes the weights of a checkpoint on their way.

    Returns:
        Whether a file was sent; and the module, or why there is none: the checkpoint does not fail with it.
    """
    if collected is None:
        return False, None
    channel.send({"is": PIECE, "of": name}, collected.header)
    broken: list[Exception] = []
    sent = _sent(channel, name, collected.runs, broken)
    found: nn.Module | Exception | None = None
    try:
        if build is not None:
            weights = (run for run in sent if run.name.startswith(MODEL_PREFIX))
            found = fill(build(), (replace(run, name=run.name.removeprefix(MODEL_PREFIX)) for run in weights))
    except Exception as error:
        if broken:
            raise
        found = error
    for _ in sent:
        pass
    return True, found


def send_state(
    channel: ControlChannel, name: str, header: bytes, read: Callable[[int, int], bytes | bytearray | memoryview]
) -> None:
    """Send the file of a state to the coordinator, which is read a piece at a time.

    Args:
        channel: to the coordinator.
        name: of the file.
        header: of it.
        read: returns bytes of the file, from one position to another: whole elements of one tensor.
    """
    channel.send({"is": PIECE, "of": name}, header)
    described = StateHeader(header)
    for tensor in described.entries:
        begin, end = described.range_of(tensor)
        for start in range(begin, end, RUN_BYTES):
            channel.send({"is": PIECE, "of": name}, memoryview(read(start, min(start + RUN_BYTES, end))))


def _sent(channel: ControlChannel, name: str, runs: Iterable[ByteRun], broken: list[Exception]) -> Iterator[ByteRun]:
    try:
        for run in runs:
            channel.send({"is": PIECE, "of": name}, run.data)
            yield run
    except Exception as error:
        broken.append(error)
        raise


def usage_of(
    rank: int, plan: Plan, *, owns_process: bool, loaders_bytes: int, cpu_s: float, wall_s: float
) -> RankUsage:
    """Return what a rank has used of its node since it was built.

    Args:
        rank: in question.
        plan: that it plays.
        owns_process: whether it is no thread beside other ranks.
        loaders_bytes: the most that its loaders held, which is added to its own peak.
        cpu_s: processor seconds since it was built.
        wall_s: seconds since then.
    """
    peak = peak_bytes() + loaders_bytes
    return RankUsage(
        rank=rank,
        node=plan.nodes[rank],
        role="worker" if rank < plan.workers else "server",
        peak_rss_bytes=peak,
        # Where ranks are threads, all of the process is shared.
        shared_rss_bytes=shared_bytes_of_this_process() if owns_process else peak,
        cpu_s=cpu_s,
        wall_s=wall_s,
    )
