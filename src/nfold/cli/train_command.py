"""nfold train: flags to `train` or `resume`, and what came of the run in at most 25 lines."""

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any

from nfold.cli.beginning import begun_s
from nfold.cli.early_template import early_template
from nfold.cli.flags import add_json, add_options, add_program, only_result_on_stdout, wishes
from nfold.cli.started_together import first_or_alone
from nfold.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nfold.cli.terminal import TerminalObserver
    from nfold.verbs.running.run import Run

EXIT_STOPPED = 75
"""EX_TEMPFAIL of sysexits.h: not done, and the same command can be tried again."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("train", help="train a program", description="Train a program; ends with a verdict.")
    add_program(parser, optional=True)
    add_options(parser)
    parser.add_argument(
        "--resume", metavar="RUN", help="go on with a run from its last checkpoint; FILE.py: where its script is now"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="go on with the run that --out holds; begin it where it holds none"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="with --on or --listen: print what would be submitted, and submit nothing",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Train, then say what came of it; return the exit code: 0, or EXIT_STOPPED where the run can go on.

    Raises:
        NfoldError: as the verbs do, or the flags contradict each other.
        KeyboardInterrupt: Ctrl-C.
    """
    with first_or_alone(parsed), early_template(parsed):
        return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.program is None and parsed.resume is None:
        raise PlanError("give a script to train, or --resume RUN to go on with a run")
    if parsed.go_on and parsed.resume is not None:
        raise PlanError("--go-on and --resume say the same: leave one of them out")
    if parsed.dry_run:
        return _show_dry_run(parsed)
    return play(parsed, _train)


def play(parsed: argparse.Namespace, train: "Callable[[argparse.Namespace, TerminalObserver, float], Run]") -> int:
    """Train, show how that goes, and say what came of it; return the exit code."""
    from nfold.cli.terminal import TerminalObserver
    from nfold.errors import Terminated
    from nfold.launch.stopping import own_process
    from nfold.machine.heap import share_heap

    if parsed.is_process:
        own_process()
        share_heap()
    observer, begun = TerminalObserver(), begun_s(with_process=parsed.is_process)
    try:
        with only_result_on_stdout(parsed), observer.shown():
            done = train(parsed, observer, begun)
    except Terminated as stop:
        print(f"nfold: stopped. {stop}", file=sys.stderr, flush=True)
        return EXIT_STOPPED
    _show(parsed, done)
    if done.is_stopped:
        sys.stdout.flush()
        print(f"nfold: stopped by --stop-after {parsed.stop_after}. {done.told}", file=sys.stderr, flush=True)
        return EXIT_STOPPED
    return 0


def _show_dry_run(parsed: argparse.Namespace) -> int:
    from nfold.verbs.train import dry_run

    if parsed.program is None:
        raise PlanError("--dry-run needs a script: nfold train FILE.py --on ... --dry-run")
    print(dry_run(parsed.program, **wishes(parsed)))
    return 0


def _train(parsed: argparse.Namespace, observer: "TerminalObserver", begun: float) -> "Run":
    from nfold.verbs.jobs.run_list import find_folder
    from nfold.verbs.train import resume, train

    if parsed.resume is not None:
        folder = find_folder(parsed.resume)
        return resume(folder, program=parsed.program, observer=observer, begun_s=begun, **wishes(parsed))
    return train(parsed.program, go_on=parsed.go_on, observer=observer, begun_s=begun, **wishes(parsed))


def _show(parsed: argparse.Namespace, done: "Run") -> None:
    """Print what a run came to, in at most 25 lines: `nfold why` has the rest."""
    from textwrap import wrap

    from nfold.core import codec
    from nfold.core.text.units import figure
    from nfold.verbs.run_folder.files import AVERAGE, BEST, PAGE
    from nfold.view import brief_text

    ending = [f"run: {done.folder}", f"page: {done.folder / PAGE}", f"more: nfold why {shlex.quote(str(done.folder))}"]
    if (best := done.best) is not None:
        value = f"{best['metric']} {figure(best['value'])} after step {best['step']}"
        ending.insert(1, f"best: {done.folder / BEST} ({value})")
    if (done.folder / AVERAGE).exists():
        ending.insert(1, f"averaged weights: {done.folder / AVERAGE}")
    if done.unkept:
        ending += wrap(f"This run cannot be resumed: {done.unkept}", 80)
    if done.was_complete:
        print(done.told, file=sys.stderr if parsed.json else sys.stdout)
    if parsed.json:
        print(codec.dumps(done.report, indent=1))
    elif done.was_complete:
        print(ending[0])
    else:
        print(brief_text(done.report, ending), end="")
