"""nfold report: flags to `report`, and the files that it wrote, by name."""

import argparse
import json
from typing import Any

from nfold.cli.flags import add_json, add_run


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Write a run's report.html again from the files in its folder: one page that opens without a network."
    parser = commands.add_parser("report", help="write a run's page again, or its trace", description=description)
    add_run(parser)
    parser.add_argument(
        "--chrome", metavar="OUT.json", help="also write its traced steps for ui.perfetto.dev or chrome://tracing"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Write and say where.

    Raises:
        NfoldError: as `report` does.
    """
    from nfold.verbs.jobs.run_list import find_reported
    from nfold.verbs.results.pages import report

    written = report(find_reported(parsed.named), chrome=parsed.chrome)
    if parsed.json:
        print(json.dumps({"page": str(written.page), "chrome": str(written.chrome) if written.chrome else None}))
        return
    print(f"page: {written.page}")
    if written.chrome is not None:
        print(f"trace: {written.chrome}  (open it in ui.perfetto.dev or chrome://tracing)")
