"""nfold compare"""

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any

from nfold.cli.flags import add_json, add_program, add_run_flags, names, numbers, only_result_on_stdout, wishes

if TYPE_CHECKING:
    from nfold.verbs.compare import Comparison


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Run every strategy with every number of workers and print one table, prediction beside measurement."
    parser = commands.add_parser("compare", help="run strategies side by side", description=description)
    add_program(parser)
    parser.add_argument("-n", "--workers", dest="counts", default="1,2,4", metavar="N,N..", help="default: 1,2,4")
    parser.add_argument("--strategies", default="ring,ps", metavar="S,S..", help="default: ring,ps")
    add_run_flags(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Compare and print."""
    from nfold.cli.terminal import TerminalObserver
    from nfold.verbs.compare import compare

    observer = TerminalObserver()
    with only_result_on_stdout(parsed), observer.shown():
        comparison = compare(
            parsed.program,
            workers=numbers(parsed.counts),
            strategies=names(parsed.strategies),
            observer=observer,
            **wishes(parsed),
        )
    show(comparison, as_json=parsed.json)


def show(comparison: "Comparison", *, as_json: bool) -> None:
    """Print a comparison."""
    from nfold.cli.terminal import look
    from nfold.core import codec
    from nfold.view import compare_table

    if as_json:
        print(codec.dumps(comparison, indent=1))
        return
    reports = [each.report for each in comparison.runs]
    print(compare_table(reports, names=[each.name for each in comparison.runs], look=look(sys.stdout)))
    for each in comparison.runs:
        print(f"nfold why {shlex.quote(each.folder)}")
