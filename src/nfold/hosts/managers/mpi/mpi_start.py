"""Tells from its environment whether MPI has started this process. Nothing is imported for it: every command asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from nfold.errors import ClusterError


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """This process among those that were started together."""

    by: str
    """What messages call the one that did."""
    rank: int
    size: int
    size_variable: str
    speaks_mpi: bool = True
    """False: srun without MPI; its processes cannot find each other."""


_WAYS = (
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", True),
    ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", True),
    ("MPI", "PMI_RANK", "PMI_SIZE", True),  # MPICH, Intel MPI, and srun --mpi=pmi2
    ("srun --mpi=pmix", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", True),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", False),  # a script of sbatch has the first one alone
)
"""Who starts, its variables of rank and size, and whether it serves MPI. The first that fits: mpirun may use srun."""

_OF_MPI = ("OMPI_", "PMIX_", "PMI_", "PMI2_", "MV2_", "OPAL_", "ORTE_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL")


def started_together(environment: Mapping[str, str]) -> Started | None:
    """Return how this process was started; None: alone."""
    for by, rank, size, speaks_mpi in _WAYS:
        values = environment.get(rank, ""), environment.get(size, "")
        if all(value.isdecimal() for value in values):
            return Started(by=by, rank=int(values[0]), size=int(values[1]), size_variable=size, speaks_mpi=speaks_mpi)
    return None


def check_started_alone(environment: Mapping[str, str]) -> None:
    """Refuse to be one of several commands that would each do the same, where no `--on mpi` was given.

    Raises:
        ClusterError: this is one of several.
    """
    started = started_together(environment)
    if started is None or started.size == 1:
        return
    raise ClusterError(
        f"{started.by} has started this command {started.size} times, and each would train on its own. Give --on mpi "
        f"so that they train together. If each is to train for itself: env -u {started.size_variable} nfold .."
    )


def among_mpi(environment: Mapping[str, str]) -> Started:
    """Return which of MPI's processes this is, for `--on mpi`.

    Raises:
        ClusterError: MPI has not started it.
    """
    started = started_together(environment)
    if started is None:
        raise ClusterError(
            "--on mpi: MPI has not started this command. Begin with it, once for each agent: "
            "mpirun -np 4 --host a,b nfold train FILE.py --on mpi"
        )
    if not started.speaks_mpi:
        raise ClusterError(
            f"--on mpi: srun has started this command {started.size} times without MPI. Let it serve MPI: "
            "srun --mpi=pmix .. (srun --mpi=list shows what there is), or use --on slurm in one process"
        )
    return started


def outside_of_mpi(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of MPI: an agent and its ranks are none of its processes any more."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_MPI)}
