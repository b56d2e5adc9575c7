"""What makes no sense where hosts come and go while a run trains: `--nodes MIN:MAX`."""

from nfold.core.options.host_range import HostRange
from nfold.core.options.protection import AUTO, read_protect
from nfold.core.options.run_options import RunOptions
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.planning.choosing.strategies import Single


def check_range(hosts: HostRange, asked: RunOptions) -> None:
    """Raise for options that a run with hosts that come and go cannot have.

    Raises:
        PlanError: one of them is given.
    """
    given = f"--nodes {hosts}"
    if asked.place is not None:
        raise PlanError(f"{given}: with --place the hosts of a run stay the same. Use --nodes {hosts.least}.")
    if asked.on == "mpi":
        raise PlanError(f"{given}: MPI starts all processes at once. Leave out --nodes.")
    if asked.checkpoint_every == 0:
        raise PlanError(f"{given}: who comes reads a checkpoint. Leave out --checkpoint-every 0.")
    if (asked.workers, asked.servers) != (hosts.least, 0):
        raise PlanError(f"{given}: each host has one rank, a worker. Leave out -n and --servers.")
    if asked.strategy == Single.name:
        raise PlanError(f"{given}: --strategy single trains on one host. Leave it out.")
    if asked.chunks is not None and asked.chunks < hosts.most:
        fits = f"{min(hosts.least, asked.chunks)}:{asked.chunks}"
        raise PlanError(
            f"{given}: a batch has {count(asked.chunks, 'chunk')}, and each host computes at least one. "
            f"Use --nodes {fits}, or more --chunks unless the run has begun."
        )


def check_protection(hosts: HostRange | None, asked: RunOptions) -> None:
    """Raise for how hosts that die are to be prepared for, where that is no such wish, or none die that are missed.

    Raises:
        PlanError: it makes no sense.
    """
    read_protect(asked.protect)
    if hosts is None and asked.protect != AUTO:
        raise PlanError(
            f"--protect {asked.protect} is for hosts that come and go. Add --nodes MIN:MAX, or leave it out."
        )


def typed_range(hosts: HostRange | None, asked: RunOptions) -> str:
    """Return the flags that let hosts come and go when a run goes on; empty: they do not."""
    listen = f" --listen {asked.listen}" if asked.on is None else ""
    return "" if hosts is None else f"--nodes {hosts}{listen}"
