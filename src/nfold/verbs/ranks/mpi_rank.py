"""A process in MPI: `python -m nfold.verbs.ranks.mpi_rank PARENT SOCKET SIZE`, started by `launch.mpi_process`.

It enters MPI, passes on what the first process says, and then leaves MPI, or becomes a rank that talks through it.
"""

import argparse
import json
import os
import socket
import sys
from functools import partial

from nfold.errors import ClusterError
from nfold.hosts.managers.mpi.mpi_start import outside_of_mpi
from nfold.launch.local_launcher import TOKEN_VARIABLE
from nfold.launch.orphans import end_with_parent
from nfold.runtime.rank.rank_tools import Wiring
from nfold.transport.links.mpi_loop import MpiLoop, load_mpi
from nfold.verbs.ranks.mpi_wiring import MpiWiring
from nfold.verbs.ranks.rank_process import be_rank

_MOST_BYTES = 1 << 17
_OUTPUT, _ERRORS = 1, 2


def main() -> int:
    """Enter MPI, and do what the parent says."""
    parent, descriptor, size = map(int, sys.argv[1:])
    end_with_parent(parent)
    line = socket.socket(fileno=descriptor)
    try:
        loop = _enter(size)
        told = line.recv(_MOST_BYTES) if loop.rank == 0 else b""
        _say(line, text=json.loads(loop.broadcast(told)))
    except ClusterError as error:
        _say(line, error=str(error))
        return 1
    said, descriptors, *_ = socket.recv_fds(line, _MOST_BYTES, 1)
    if not said:
        loop.leave()
        return 0
    order = json.loads(said)
    _take_place(order, descriptors[0])
    return be_rank(order["words"], partial(_wiring, loop), leave=loop.leave)


def _enter(size: int) -> MpiLoop:
    loop = MpiLoop("nfold-mpi", load_mpi())
    if loop.size != size:
        raise ClusterError(
            f"MPI has started {size} processes, and mpi4py sees {loop.size}: it was built for another MPI. "
            "Install it for this one on every host: pip install --force-reinstall --no-binary mpi4py mpi4py"
        )
    return loop


def _say(line: socket.socket, **told: str) -> None:
    line.send(json.dumps(told).encode())


def _take_place(order: dict[str, str], output: int) -> None:
    """Be where a launcher would have started the rank, and as it would. What the rank starts is none of MPI's."""
    os.dup2(output, _OUTPUT)
    os.dup2(output, _ERRORS)
    os.close(output)
    if order["folder"]:
        os.chdir(order["folder"])
    left = outside_of_mpi(os.environ)
    for name in set(os.environ) - set(left):
        del os.environ[name]
    os.environ[TOKEN_VARIABLE] = order["token"]


def _wiring(loop: MpiLoop, arguments: argparse.Namespace, host: str, token: str) -> Wiring:
    del host, token  # who is in MPI was started by it, and knows where all are
    return MpiWiring(arguments.member, loop)


if __name__ == "__main__":
    sys.exit(main())
