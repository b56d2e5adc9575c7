"""nfold plan: flags to `plan`, and the Plan that it returns as a table or as JSON."""

import argparse
import sys
from typing import Any

from nfold.cli.early_template import early_template
from nfold.cli.flags import add_json, add_options, add_program, only_result_on_stdout, wishes
from nfold.cli.started_together import first_or_alone
from nfold.core.options.run_options import WATCHING


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = "Say what train would do and why the other strategies lost. Measures the program; trains nothing."
    parser = commands.add_parser("plan", help="say what train would do, and why", description=description)
    add_program(parser)
    add_options(parser, without=WATCHING)
    parser.add_argument(
        "--cluster", metavar="FILE.toml", help="plan for the machines that it declares; a worker per node unless -n"
    )
    parser.add_argument("--all", action="store_true", help="show every proposal, not only the best of each strategy")
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Plan and print.

    Raises:
        NfoldError: as `plan` does.
    """
    with first_or_alone(parsed), only_result_on_stdout(parsed), early_template(parsed):
        from nfold.cli.terminal import look
        from nfold.core import codec
        from nfold.verbs.train import plan
        from nfold.view import plan_table

        made = plan(parsed.program, cluster=parsed.cluster, **wishes(parsed))
    print(codec.dumps(made, indent=1) if parsed.json else plan_table(made, shows_all=parsed.all, look=look(sys.stdout)))
