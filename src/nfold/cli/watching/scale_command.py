"""nfold scale"""

import argparse
from typing import Any

from nfold.cli.flags import add_run


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Ask a run that was begun with --nodes MIN:MAX to train on more or fewer hosts, within MIN and MAX."
    parser = commands.add_parser("scale", help="give a run more or fewer hosts", description=description)
    add_run(parser, unless_given="the only one that goes on")
    parser.add_argument("asked", metavar="N|+N|-N", help="how many hosts, or how many more or fewer")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Ask, and print the answer."""
    from nfold.verbs.jobs.scale_run import scale

    print(scale(parsed.named, parsed.asked))
