"""nfold demo: flags to `demo`, and the Comparison that it returns, printed as `nfold compare` does."""

import argparse
from typing import Any

from nfold.cli.flags import add_json


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Train real handwritten digits with one worker, a ring and a parameter server, side by side."
    parser = commands.add_parser("demo", help="the real handwritten digits, three ways", description=description)
    parser.add_argument("-n", "--workers", type=int, default=2, metavar="N", help="workers of ring and server; 2")
    parser.add_argument("--out", metavar="DIR", help="folder of the runs; a new one under runs/ unless given")
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Train three times and print one table."""
    from nfold.cli.compare_command import show
    from nfold.cli.terminal import TerminalObserver
    from nfold.verbs.demo import demo

    observer = TerminalObserver()
    try:
        comparison = demo(workers=parsed.workers, out=parsed.out, observer=observer)
    finally:
        observer.close()
    show(comparison, as_json=parsed.json)
