"""What starts the process of a rank, but for its number and the coordinator's address."""

import sys
from pathlib import Path


def rank_command(script: Path, function: str, interpreter: str = sys.executable) -> list[str]:
    """Return the command for a function of a script."""
    module = [interpreter, "-P", "-m", "nfold.verbs.ranks.rank_process"]
    return [*module, "--script", str(script), "--function", function]
