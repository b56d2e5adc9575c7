"""What starts a rank's process, but for its number and the coordinator's address, and what ranks are forked from."""

import sys
from pathlib import Path

_MODULE = ("-P", "-m")


def rank_command(script: Path, function: str, interpreter: str = sys.executable) -> list[str]:
    """Return the command for a function of a script."""
    module = [interpreter, *_MODULE, "nfold.verbs.ranks.rank_process"]
    return [*module, "--script", str(script), "--function", function]


def template_command(script: Path, interpreter: str = sys.executable) -> list[str]:
    """Return the command of the process that ranks of a script are forked from."""
    return [interpreter, *_MODULE, "nfold.verbs.ranks.rank_template", str(script)]
