"""nfold stop"""

import argparse
from typing import Any

from nfold.cli.flags import add_run


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Ask a run of another terminal to end after the step under way, as Ctrl-C there does; wait for its end; say "
        "what is kept and how to go on."
    )
    parser = commands.add_parser("stop", help="end a run of another terminal", description=description)
    add_run(parser, unless_given="the only one that goes on")
    parser.add_argument("--wait", default="60", metavar="TIME", help="for its end; 60 (seconds) unless given, as in 5m")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Stop it and print what is kept."""
    from nfold.core.text.durations import duration_s
    from nfold.verbs.jobs.stop_run import stop

    print(stop(parsed.named, wait_s=duration_s(parsed.wait, "--wait")))
