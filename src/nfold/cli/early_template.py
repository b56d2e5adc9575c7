"""What ranks are forked from begins to import with the command, beside what the command itself imports."""

import argparse
import contextlib
import os

from nfold.cli.flags import wishes
from nfold.verbs.options.forked import are_forked

_DECIDE = ("debug", "emulate", "on", "listen")


def early_template(parsed: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Keep a template for the ranks of a command whose script is there, if they will be forked.

    Raises:
        PlanError: there are no such hosts.
    """
    given, script = wishes(parsed), _script_of(parsed.program or "")
    if not (os.path.isfile(script) and are_forked(**{name: given.get(name) for name in _DECIDE})):
        return contextlib.nullcontext()
    from pathlib import Path

    from nfold.launch.rank_command import template_command
    from nfold.launch.template import shared_template

    return shared_template(template_command(Path(script).resolve()))


def _script_of(program: str) -> str:
    """Return the path in `FILE.py[:function]`."""
    file, _, function = program.rpartition(":")
    return file if function.isidentifier() else program
