"""nfold advise: flags to `advise`, and the Advice that it returns as a table with sentences or as JSON."""

import argparse
import sys
from typing import Any

from nfold.cli.early_template import early_template
from nfold.cli.flags import add_json, add_option, add_program, only_result_on_stdout, wishes

_OPTIONS = (
    "on",
    "listen",
    "hosts_within",
    "python",
    "port",
    "emulate",
    "chunks",
    "steps",
    "seed",
    "device",
    "loaders",
    "measure_again",
)


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Say how long a program would train on other numbers of nodes, what that costs, and where more nodes stop "
        "helping. Measures the program, nodes and links; trains nothing."
    )
    parser = commands.add_parser("advise", help="say how many nodes are worth having", description=description)
    add_program(parser)
    parser.add_argument(
        "--nodes",
        metavar="LOW:HIGH",
        default=argparse.SUPPRESS,
        help="numbers of nodes to look at: all up to 8, then 12, 16, 24, 32 ..; 1:16 unless given",
    )
    parser.add_argument(
        "--probe",
        type=int,
        metavar="N",
        help="nodes to measure; all of an emulated cluster or a hosts file, else 2, unless given",
    )
    parser.add_argument(
        "--price-per-hour", type=float, metavar="P", help="of each node; as the cluster file says unless given"
    )
    parser.add_argument("--within", metavar="TIME", help="say how many nodes are done in it: 90 (seconds), 30m, 3h, 1d")
    for name in _OPTIONS:
        add_option(parser, name)
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Measure, plan and print.

    Raises:
        NfoldError: as `advise` does.
    """
    with early_template(parsed):
        from nfold.cli.terminal import TerminalObserver, look
        from nfold.core import codec
        from nfold.verbs.advise import advise
        from nfold.view.advice_text import advice_text

        observer = TerminalObserver()
        with only_result_on_stdout(parsed), observer.shown():
            found = advise(
                parsed.program,
                probe=parsed.probe,
                price_per_hour=parsed.price_per_hour,
                within=parsed.within,
                observer=observer,
                **wishes(parsed),
            )
        print(codec.dumps(found, indent=1) if parsed.json else advice_text(found, look=look(sys.stdout)))
