"""The file of a run's events: what changed who trains, a JSON object a line. Its last line may be half of one."""

import json
from pathlib import Path

from nfold.core import codec
from nfold.core.member_event import MemberEvent


def append(path: Path, event: MemberEvent) -> None:
    """Add a row.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(codec.encode(event)) + "\n")


def read(path: Path) -> list[MemberEvent]:
    """Return the rows, but for half of one at the end, whose writer was killed; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [codec.decode(MemberEvent, json.loads(line)) for line in lines if line.endswith("\n")]
