"""nfold emulate"""

import argparse
import sys
import threading
from typing import Any

from nfold.cli.flags import add_option, wishes
from nfold.core.text.quantities import num_bytes
from nfold.errors import ClusterError

_USAGE = "nfold emulate [-h] [--fault 'VERB NODE ..@TIME'] [--memory-per-command SIZE] CLUSTER.toml -- COMMAND ..."


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Run any command once on every node of an emulated cluster, with RANK, WORLD_SIZE, MASTER_ADDR and the like "
        "set, as a launcher of distributed programs does. Ends with the exit code of the first node that failed. "
        "Linux, root."
    )
    parser = commands.add_parser(
        "emulate", help="run any command on an emulated cluster", description=description, usage=_USAGE
    )
    _add_own(parser)
    parser.add_argument(
        "rest",
        nargs=argparse.REMAINDER,  # all of it: argparse would take the -- for itself
        metavar="CLUSTER.toml -- COMMAND ...",
        help="a file of nodes with cores, memory, uplink, downlink and latency; what every node runs",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command on every node and return its exit code.

    Raises:
        NfoldError: as `emulate` does, or no command was given.
    """
    from nfold.verbs.emulate import emulate

    own, command = split(parsed.rest)
    size = own.memory_per_command or parsed.memory_per_command
    needed = {"bytes_per_command": num_bytes(size)} if size else {}
    faults = [text for given in (parsed, own) for text in wishes(given).get("fault", ())]
    return emulate(own.cluster, command, fault=faults, write=Prefixed(), **needed)


def _add_own(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "fault")
    parser.add_argument(
        "--memory-per-command",
        metavar="SIZE",
        help="what the command needs on each node, as '2 GiB', so that more than fit are refused; 350 MB unless given, "
        "which a process with torch takes before it does anything",
    )


def split(rest: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the cluster's file, with the flags that come behind it, and the command, which follows the first --.

    Raises:
        ClusterError: there is no --.
    """
    if "--" not in rest:
        raise ClusterError(f"no command was given: write it after --. Usage: {_USAGE}")
    border = rest.index("--")
    own = argparse.ArgumentParser(prog="nfold emulate", usage=_USAGE, add_help=False)
    own.add_argument("cluster")
    _add_own(own)
    return own.parse_args(rest[:border]), rest[border + 1 :]


class Prefixed:
    """Writes whole lines, each after the name of its node; threads may write at once."""

    def __init__(self) -> None:
        self._writing = threading.Lock()

    def __call__(self, line: str, node: str, is_error: bool) -> None:
        """Write a line, to stderr if it is of the node's error output, else to stdout."""
        with self._writing:
            print(f"[{node}] {line}", file=sys.stderr if is_error else sys.stdout, flush=True)
