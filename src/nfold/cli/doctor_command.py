"""nfold doctor"""

import argparse
import sys
from typing import Any

from nfold.cli.flags import add_json, add_option, wishes
from nfold.cli.started_together import first_or_alone

EXIT_FAILED = 2
_OPTIONS = ("on", "nodes", "listen", "hosts_within", "hosts_for", "gang", "cpus", "python", "tls")


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="look at hosts before a run uses them",
        description="Check versions, clocks, disks, ports and links of hosts. Ends with 0 where all pass.",
    )
    for name in _OPTIONS:
        add_option(parser, name)
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Look, tell what was found, and return the exit code."""
    import json
    from dataclasses import asdict

    from nfold.verbs.doctor import doctor

    with first_or_alone(parsed):
        checks = doctor(wishes(parsed), lambda text: print(text, file=sys.stderr, flush=True))
    if parsed.json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            print(f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.told}")
            if check.fix:
                print(f"      what to do: {check.fix}")
    return 0 if all(check.passed for check in checks) else EXIT_FAILED
