"""nfold logs"""

import argparse
from typing import Any

from nfold.cli.flags import add_run


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Print what a run's ranks have printed, each line marked with its rank, and what was said on the way."
    parser = commands.add_parser("logs", help="print what a run's ranks print", description=description)
    add_run(parser)
    parser.add_argument("--rank", type=int, metavar="N", help="only what this rank printed, without the mark")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends, or Ctrl-C")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Print the lines as they come."""
    from nfold.verbs.jobs.log_reading import read_logs

    for line in read_logs(parsed.named, rank=parsed.rank, follows=parsed.follow):
        print(line, flush=parsed.follow)
