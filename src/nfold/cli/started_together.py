"""What becomes of a command that MPI, or srun alone, has started more than once."""

import argparse
import contextlib
import os
from collections.abc import Iterator

from nfold.cli.flags import wishes


@contextlib.contextmanager
def first_or_alone(parsed: argparse.Namespace) -> Iterator[None]:
    """Go on as the only one that does: with `--on mpi` in rank 0, whose others become agents, and else alone.

    Raises:
        ClusterError: each of several would do the same, or MPI has not started this one.
    """
    if wishes(parsed).get("on") != "mpi":
        from nfold.hosts.managers.mpi.mpi_start import check_started_alone

        check_started_alone(os.environ)
        yield
        return
    from nfold.hosts.managers.mpi.mpi_agents import with_others

    with with_others():
        yield
