"""What makes no sense where hosts come and go while a run trains: `--nodes MIN:MAX`."""

from nfold.core.options.host_range import HostRange
from nfold.core.options.protection import AUTO, read_protect
from nfold.core.options.run_options import RunOptions
from nfold.core.text.durations import duration_s
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.planning.choosing.strategies import PLACING, Single

HOLD_S = 600.0
"""How long hosts wait for another coordinator, unless somebody says."""


def hold_s_of(hosts: HostRange | None, hold_for: float | str | None, *, is_placed: bool) -> float:
    """Return how long hosts wait for another coordinator; 0: they end with theirs, as those that hold data do.

    Raises:
        PlanError: it is no time, the hosts of the run stay the same, or data live on them.
    """
    if hold_for is None:
        return 0.0 if hosts is None or is_placed else HOLD_S
    if is_placed:
        raise PlanError(f"--hold-for {hold_for}: with --place hosts do not hold when the command dies. Leave it out.")
    if hosts is None:
        raise PlanError(f"--hold-for {hold_for} is for hosts that come and go: --on or --listen, with --nodes MIN:MAX.")
    return 0.0 if str(hold_for) in ("0", "0.0") else duration_s(hold_for, "--hold-for")


def check_range(hosts: HostRange, asked: RunOptions, num_first: int) -> None:
    """Raise for options that a run with hosts that come and go cannot have.

    Args:
        hosts: the fewest and the most.
        asked: of the run.
        num_first: hosts that it begins with.

    Raises:
        PlanError: one of them is given.
    """
    given = f"--nodes {hosts}"
    if asked.place is not None:
        _check_place(hosts, asked)
    if asked.on == "mpi":
        raise PlanError(f"{given}: MPI starts all processes at once. Leave out --nodes.")
    if asked.checkpoint_every == 0:
        raise PlanError(f"{given}: who comes reads a checkpoint. Leave out --checkpoint-every 0.")
    if (asked.workers, asked.servers) != (num_first, 0):
        raise PlanError(f"{given}: each host has one rank, a worker. Leave out -n and --servers.")
    if asked.strategy == Single.name:
        raise PlanError(f"{given}: --strategy single trains on one host. Leave it out.")
    if asked.strategy in PLACING and hosts.least < 2:
        least = f"Use --nodes 2:{max(2, hosts.most)}, or leave out --strategy."
        raise PlanError(f"{given}: --strategy {asked.strategy} cuts the model, which takes two hosts. {least}")
    if asked.chunks is not None and asked.chunks < hosts.most and asked.strategy not in PLACING:
        fits = f"{min(hosts.least, asked.chunks)}:{asked.chunks}"
        raise PlanError(
            f"{given}: a batch has {count(asked.chunks, 'chunk')}, and each host computes at least one. "
            f"Use --nodes {fits}, or more --chunks unless the run has begun."
        )


def _check_place(hosts: HostRange, asked: RunOptions) -> None:
    """Raise for what samples cannot follow hosts with."""
    given = f"--nodes {hosts}"
    if asked.place == "nothing":
        stay = f"Use --nodes {hosts.least}" if asked.emulate is None else "Leave out --nodes"
        raise PlanError(
            f"{given}: with --place nothing all samples stay where they are, and so must the hosts. {stay}, or use "
            "--place auto."
        )
    if asked.chunks is not None:
        raise PlanError(f"{given}: with --place each host that trains has one chunk of a batch. Leave out --chunks.")


def check_protection(hosts: HostRange | None, asked: RunOptions) -> None:
    """Raise for how hosts that die are to be prepared for, where that is no such wish, or none die that are missed.

    Raises:
        PlanError: it makes no sense.
    """
    most = read_protect(asked.protect).most_steps
    if hosts is None and asked.protect != AUTO:
        raise PlanError(
            f"--protect {asked.protect} is for hosts that come and go. Add --nodes MIN:MAX, or leave it out."
        )
    if most and asked.place is not None:
        raise PlanError(
            f"--protect {asked.protect}: with --place no snapshots are kept, and a lost host costs the steps since the "
            f"last checkpoint. Use --checkpoint-every {most}."
        )
