"""nfold resume"""

import argparse
from typing import TYPE_CHECKING, Any

from nfold.cli.flags import add_json
from nfold.cli.train_command import play

if TYPE_CHECKING:
    from nfold.cli.terminal import TerminalObserver
    from nfold.verbs.running.run import Run


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Go on with a run whose command is gone, killed or with its machine, and whose hosts hold: from the step that "
        "they hold."
    )
    parser = commands.add_parser("resume", help="go on with a run whose hosts hold", description=description)
    parser.add_argument("named", metavar="RUN", help="number or folder of the run, on the machine where it began")
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Go on, then say what came of it; return the exit code as `nfold train` does."""
    return play(parsed, _resume)


def _resume(parsed: argparse.Namespace, observer: "TerminalObserver", begun_s: float) -> "Run":
    from nfold.verbs.jobs.run_list import find_folder
    from nfold.verbs.train import resume_held

    return resume_held(find_folder(parsed.named), observer=observer, begun_s=begun_s)
