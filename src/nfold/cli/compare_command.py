"""nfold compare: flags to `compare` or `compare_runs`, and a Comparison to tables and sentences."""

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from nfold.cli.flags import add_json, add_options, names, numbers, only_result_on_stdout, wishes
from nfold.cli.started_together import first_or_alone
from nfold.core.options.run_options import WATCHING, flags_of
from nfold.errors import PlanError

if TYPE_CHECKING:
    from nfold.core.findings.comparison import Comparison

_COUNTS, _STRATEGIES = "1,2,4", "ring,ps"
_ITS_OWN = ("workers", "strategy", "servers", "place", "checkpoint_every", "keep", "stop_after", *WATCHING)
"""Options that it takes several of, or none."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Run every strategy with every number of workers, on all links, and say which wins where, prediction beside "
        "measurement; or put runs side by side that have ended. Writes compare.json and compare.html beside the runs, "
        "or to --out."
    )
    parser = commands.add_parser("compare", help="run strategies side by side", description=description)
    parser.add_argument(
        "program",
        metavar="FILE.py[:function] | RUN",
        nargs="+",
        help="a script with a function that returns nfold.Program, or folders of runs",
    )
    parser.add_argument("-n", "--workers", dest="counts", metavar="N,N..", help=f"default: {_COUNTS}")
    parser.add_argument("--strategies", metavar="S,S..", help=f"default: {_STRATEGIES}")
    add_options(parser, without=_ITS_OWN)
    parser.add_argument("--servers", dest="server_counts", metavar="K,K..", help="dedicated server ranks; default: 0")
    parser.add_argument(
        "--links", metavar="'R,R.. UNIT'", help="speeds of all links of the emulated cluster: '50,200,1000 Mbit/s'"
    )
    parser.add_argument(
        "--target-loss", type=float, metavar="L", help="time how long each takes to it; default: the lowest all reach"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Compare and print: folders of runs that have ended as they are, a script after running it.

    Raises:
        NfoldError: as the verbs do, or the flags contradict each other.
    """
    with first_or_alone(parsed):
        comparison = _of_runs(parsed) if _are_runs(parsed.program) else _of_program(parsed)
    show(comparison, as_json=parsed.json)


def _are_runs(given: list[str]) -> bool:
    folders = [path for path in given if os.path.isdir(path)]
    if len(given) > 1 and len(folders) < len(given):
        other = next(path for path in given if path not in folders)
        raise PlanError(f"{other} is no folder of a run. Give one script to run, or folders of runs that have ended.")
    return bool(folders)


def _of_runs(parsed: argparse.Namespace) -> "Comparison":
    from nfold.verbs.compare import compare_runs

    if flags := _run_flags(parsed):
        raise PlanError(
            f"runs that have ended are compared as they are: {', '.join(flags)} would change nothing. "
            "Leave that out, or give a script to run instead of folders."
        )
    return compare_runs(parsed.program, target_loss=parsed.target_loss, out=wishes(parsed).get("out"))


def _run_flags(parsed: argparse.Namespace) -> list[str]:
    """Return the flags that were given and that only say how to run something."""
    named = {"counts": "-n", "strategies": "--strategies", "server_counts": "--servers", "links": "--links"}
    flags = [flag for name, flag in named.items() if getattr(parsed, name) is not None]
    return flags + [flags_of(name)[-1] for name in wishes(parsed) if name != "out"]


def _of_program(parsed: argparse.Namespace) -> "Comparison":
    from nfold.cli.terminal import TerminalObserver
    from nfold.verbs.compare import compare

    observer = TerminalObserver()
    with only_result_on_stdout(parsed), observer.shown():
        return compare(
            parsed.program[0],
            workers=numbers(_COUNTS if parsed.counts is None else parsed.counts),
            strategies=names(_STRATEGIES if parsed.strategies is None else parsed.strategies),
            server_counts=None if parsed.server_counts is None else numbers(parsed.server_counts),
            links_bytes_per_s=links(parsed.links) if parsed.links else (),
            target_loss=parsed.target_loss,
            observer=observer,
            **wishes(parsed),
        )


def links(text: str) -> list[float]:
    """Read `50,200 Mbit/s` as bytes per second: a rate without a unit has that of the last one.

    Raises:
        ClusterError: the last one has no unit, or a rate is not positive.
    """
    from nfold.core.text.quantities import bytes_per_s

    rates = [part.strip() for part in text.split(",") if part.strip()]
    unit = rates[-1].lstrip("0123456789. ") if rates else ""
    return [bytes_per_s(rate if rate[-1].isalpha() else f"{rate} {unit}") for rate in rates] or [bytes_per_s(text)]


def show(comparison: "Comparison", *, as_json: bool) -> None:
    """Print a comparison: as tables, sentences and commands that look closer, or as JSON."""
    from nfold.cli.terminal import look
    from nfold.core import codec
    from nfold.view import compare_table
    from nfold.view.comparison_text import conclusion_text

    if as_json:
        print(codec.dumps(comparison, indent=1))
        return
    seen = look(sys.stdout)
    reports = [each.report for each in comparison.runs]
    print(compare_table(reports, names=[each.name for each in comparison.runs], look=seen))
    print(conclusion_text(comparison, look=seen))
    for each in comparison.runs:
        print(f"nfold why {shlex.quote(each.folder)}")
    if comparison.page:
        print(f"page: {comparison.page}")
