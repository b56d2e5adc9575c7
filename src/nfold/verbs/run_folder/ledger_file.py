"""The file of a run's events: what changed who trains, a JSON object a line. Its last line may be half of one."""

from pathlib import Path

from nfold.core import codec
from nfold.core.codec import CodecError
from nfold.core.member_event import MemberEvent
from nfold.verbs.run_folder.whole_lines import append_lines, cut_half_line


def append(path: Path, event: MemberEvent) -> None:
    """Add a row, in place of half of one at the end.

    Raises:
        OSError: the disk is full, or the folder is gone; nothing of the row is left.
    """
    cut_half_line(path)
    append_lines(path, f"{codec.dumps(event)}\n".encode())


def read(path: Path) -> list[MemberEvent]:
    """Return the rows, but for half of one at the end, whose writer was killed; none where there is no file.

    Raises:
        CodecError: a whole line is no row; the message names it.
    """
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [_row(path, number, line) for number, line in enumerate(lines, 1) if line.endswith(b"\n")]


def _row(path: Path, number: int, line: bytes) -> MemberEvent:
    try:
        return codec.loads(MemberEvent, line.decode())
    except ValueError as error:
        raise CodecError(f"{path}, line {number}: {error}. Remove that line; nothing else depends on it.") from error
