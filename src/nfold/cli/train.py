"""nfold train"""

import argparse
import sys
from typing import Any

from nfold.cli.beginning import begun_s
from nfold.cli.flags import add_json, add_program, add_run_flags, only_result_on_stdout, wishes
from nfold.errors import PlanError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("train", help="train a program", description="Train a program; ends with a verdict.")
    add_program(parser, optional=True)
    parser.add_argument("-n", "--workers", type=int, metavar="N", help="worker ranks; 1 unless given")
    parser.add_argument(
        "--strategy",
        metavar="S",
        help="single, ring, ps, weighted, pipeline, hybrid, hypergraph, ps-async, ssp or auto (unless given)",
    )
    add_run_flags(parser)
    parser.add_argument(
        "--resume", metavar="RUN", help="go on with a run from its last checkpoint; FILE.py: where its script is now"
    )
    parser.add_argument(
        "--checkpoint-every", type=int, metavar="K", help="steps between checkpoints; an epoch unless given; 0: none"
    )
    parser.add_argument(
        "--keep",
        metavar="best:METRIC",
        help="keep the model of the best evaluation too, as in best:accuracy or best:test_loss:min",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Train, then say what came of it."""
    from nfold.analysis.units import figure
    from nfold.cli.terminal import TerminalObserver, look
    from nfold.core import codec
    from nfold.verbs.folder import BEST, PAGE
    from nfold.verbs.train import resume, train
    from nfold.view import why_text

    if parsed.program is None and parsed.resume is None:
        raise PlanError("give a script to train, or --resume RUN to go on with a run")
    observer, begun = TerminalObserver(), begun_s(with_process=parsed.is_process)
    with only_result_on_stdout(parsed), observer.shown():
        if parsed.resume is not None:
            done = resume(parsed.resume, program=parsed.program, observer=observer, begun_s=begun, **wishes(parsed))
        else:
            done = train(parsed.program, observer=observer, begun_s=begun, **wishes(parsed))
    if parsed.json:
        print(codec.dumps(done.report, indent=1))
    else:
        print(why_text(done.report, look=look(sys.stdout)))
        print(f"run: {done.folder}")
        if (best := done.best) is not None:
            print(f"best: {done.folder / BEST} ({best['metric']} {figure(best['value'])} after step {best['step']})")
        print(f"page: {done.folder / PAGE}")
