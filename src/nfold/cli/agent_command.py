"""nfold agent, nfold join"""

import argparse
import math
import os
import sys
from typing import Any

from nfold.core.options.whole import read_digits
from nfold.errors import ClusterError, clipped

LAST_PORT = 65535


def add_parser(commands: Any) -> None:
    """Add both commands."""
    agent = commands.add_parser(
        "agent",
        help="take part in a job on this host; started by nfold itself",
        description="Serve one job on this host.",
    )
    agent.add_argument("--connect", required=True, metavar="HOST:PORT,..", help="where the job may be reached")
    agent.add_argument("--in-mpi", action="store_true", help="tell all others that MPI has started what it was told")
    agent.add_argument("--place", type=int, metavar="K", help="which of the places that were asked for this is")
    agent.add_argument(
        "--while-input", action="store_true", help="ends when standard input does, behind the token's line"
    )
    _add_rest(agent)
    join = commands.add_parser(
        "join",
        help="lend this host to a job that listens",
        description="Take part in a job on another machine, as it says when it is started with --listen.",
    )
    join.add_argument("connect", metavar="HOST:PORT", help="where the job listens")
    join.set_defaults(place=None, while_input=False, in_mpi=False)
    _add_rest(join)


def _add_rest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        required=True,
        metavar="FILE",
        help="holds the job's token, for nobody else to read; -: the first line of standard input",
    )
    parser.add_argument("--name", default="", help="of this host in plans and messages; its own unless given")
    parser.add_argument(
        "--cores", type=_above_zero, default=math.inf, metavar="N", help="uses no more of this host's cores"
    )
    parser.add_argument(
        "--memory-mib", type=_above_zero, default=math.inf, metavar="N", help="uses no more of this host's memory"
    )
    parser.set_defaults(run=run)


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def run(parsed: argparse.Namespace) -> int:
    """Serve until the job is over; return the exit code."""
    from nfold.hosts.agent.agent import AgentSettings, serve
    from nfold.hosts.host_facts import why_no_name
    from nfold.transport.connecting.token_file import read_token

    if why := why_no_name(parsed.name):
        raise ClusterError(f"--name {clipped(ascii(parsed.name))}: {why}. Give this host a short one.")
    addresses = tuple(read_address(text) for text in parsed.connect.split(","))
    token = read_token(parsed.token_file)
    settings = AgentSettings(
        addresses=addresses,
        token=token,
        place=parsed.place,
        name=parsed.name,
        most_cores=parsed.cores,
        most_memory_bytes=parsed.memory_mib * (1 << 20),
        while_input=parsed.while_input,
    )
    if not parsed.in_mpi:
        return serve(settings)
    from nfold.core import codec
    from nfold.hosts.manager import Call
    from nfold.hosts.managers.mpi.mpi_start import among_mpi
    from nfold.launch.mpi_process import MpiProcess

    call = Call(addresses=addresses, token=token, interpreter=sys.executable, in_mpi=True)
    with MpiProcess(among_mpi(os.environ).size) as process:
        process.tell(codec.dumps(call))
        return serve(settings, process)


def read_address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`.

    Raises:
        ClusterError: it is something else.
    """
    host, _, port = text.rpartition(":")
    number = read_digits(port)
    if not host or number is None or not 0 < number <= LAST_PORT:
        named = clipped(repr(text))
        raise ClusterError(f"{named} is no address. Give the job's as it was printed, as in 10.0.0.1:7000")
    return host, number
