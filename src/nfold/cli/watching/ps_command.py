"""nfold ps"""

import argparse
import json
import os
import socket
import sys
import time
from dataclasses import asdict
from typing import Any

from nfold.cli.flags import add_json

_MOST_ENDED = 10


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "List your runs: those that go on first, then the newest that have ended. The number of a run stands for it in "
        "top, logs, stop, why, report and --resume."
    )
    parser = commands.add_parser("ps", help="list your runs", description=description)
    parser.add_argument("--all", action="store_true", help=f"all that have ended, not only the newest {_MOST_ENDED}")
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Read the list and print it."""
    from nfold.cli.terminal import look
    from nfold.core.text.units import count
    from nfold.verbs.jobs.run_list import all_runs, is_running
    from nfold.view import runs_table

    runs = all_runs()
    going_on = [each for each in runs if is_running(each)]
    ended = [each for each in runs if not is_running(each)]
    shown = [*going_on, *(ended if parsed.all else ended[:_MOST_ENDED])]
    if parsed.json:
        print(json.dumps({"runs": [asdict(each) for each in shown]}, indent=1))
        return
    if not shown:
        print("No run is listed yet. Begin one: nfold train FILE.py")
        return
    where = {"host": socket.gethostname(), "here": os.getcwd()}
    print(runs_table(shown, now=time.time(), **where, look=look(sys.stdout)), end="")
    if left_out := len(runs) - len(shown):
        print(f"\n{count(left_out, 'older run')}: --all")
