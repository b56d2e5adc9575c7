"""nfold place: flags to `place`, and the ResidencyPlan that it returns as a table with sentences, JSON or a picture."""

import argparse
import sys
from typing import Any

from nfold.cli.flags import add_json, names, only_result_on_stdout

_UNLESS_GIVEN = ("epochs", "method", "traffic", "time_limit")
"""Flags whose defaults the verb has."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Say where training samples should live on the nodes of a cluster file, what moves there, who sends gradients, "
        "and what that brings. Moves nothing and trains nothing."
    )
    parser = commands.add_parser("place", help="say where data should live, and what moves", description=description)
    parser.add_argument("cluster", metavar="CLUSTER.toml", help="nodes, with how many samples live on each")
    parser.add_argument(
        "--program",
        metavar="FILE.py[:function]",
        help="is measured for samples per second and bytes of gradients; unless given, nodes say how fast they train",
    )
    parser.add_argument(
        "--epochs", type=int, metavar="N", default=argparse.SUPPRESS, help="of the run; 10 unless given"
    )
    parser.add_argument(
        "--method",
        metavar="M",
        default=argparse.SUPPRESS,
        help="auto, nothing, equal, ilp, greedy, lp, waterfill, overlap or joint; auto unless given",
    )
    parser.add_argument(
        "--traffic",
        metavar="T",
        default=argparse.SUPPRESS,
        help="of a step: ring or server (gradients), or pipeline; ring unless given",
    )
    parser.add_argument("--batch", type=int, metavar="B", help="samples of a step; the program's, or 128, unless given")
    parser.add_argument(
        "--batch-up-to",
        type=int,
        metavar="B",
        help="allow a larger batch, which changes what is learnt, up to this one",
    )
    parser.add_argument(
        "--gradient", metavar="SIZE", help="of a step, as '1 MB'; the program's, or nothing, unless given"
    )
    parser.add_argument(
        "--activations", metavar="SIZE", help="of one sample, that a stage of a pipeline passes on, as '100 kB'"
    )
    parser.add_argument("--without", metavar="NODE,NODE", help="nodes that shall hold and compute nothing")
    parser.add_argument(
        "--time-limit", metavar="T", default=argparse.SUPPRESS, help="for the integer program; 60 seconds unless given"
    )
    parser.add_argument("--picture", metavar="FILE", help="also draw it: a page (.html) or a picture (.svg)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Plan, print, and then draw where that was asked for.

    Raises:
        NfoldError: as `place` does.
    """
    from nfold.cli.terminal import TerminalObserver, look
    from nfold.core import codec
    from nfold.verbs.place import check_picture, place, write_picture
    from nfold.view.place_text import place_text

    if parsed.picture is not None:
        check_picture(parsed.picture)
    observer = TerminalObserver()
    with only_result_on_stdout(parsed), observer.shown():
        plan = place(
            parsed.cluster,
            program=parsed.program,
            batch=parsed.batch,
            batch_up_to=parsed.batch_up_to,
            gradient=parsed.gradient,
            activations=parsed.activations,
            without=tuple(names(parsed.without or "")),
            observer=observer,
            **{name: value for name, value in vars(parsed).items() if name in _UNLESS_GIVEN},
        )
    print(codec.dumps(plan, indent=1) if parsed.json else place_text(plan, look=look(sys.stdout)))
    if parsed.picture is not None:
        write_picture(plan, parsed.picture)
