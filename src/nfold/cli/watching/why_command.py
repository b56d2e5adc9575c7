"""nfold why: a run's folder to `why`, and the Report that it returns as text or as JSON."""

import argparse
import sys
from typing import Any

from nfold.cli.flags import add_json, add_run


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Say what held a run back: verdict, ledger, causes ranked by seconds lost, next command."
    parser = commands.add_parser("why", help="say what held a run back", description=description)
    add_run(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Read the report and print it.

    Raises:
        NfoldError: as `why` does.
    """
    from nfold.cli.terminal import look
    from nfold.core import codec
    from nfold.verbs.jobs.run_list import find_reported
    from nfold.verbs.train import why
    from nfold.view import why_text

    report = why(find_reported(parsed.named))
    print(codec.dumps(report, indent=1) if parsed.json else why_text(report, look=look(sys.stdout)))
