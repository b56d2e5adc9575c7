"""Says where a run, or a comparison of runs, is to be written, and what there is only because of it."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from nfold.errors import PlanError

RUNS = Path("runs")


def place(out: str | Path | None, name: str) -> tuple[Path, list[Path]]:
    """Return where something is to be written, and which folders there are, or will be, only because of it.

    Args:
        out: the folder that was asked for; None: a new one under runs/, which is made at once.
        name: of the new one, but for its number.

    Returns:
        The folder; and what to remove again if nothing is written, itself first.
    """
    if out is not None:
        return Path(out), _missing(Path(out))
    missing = _missing(RUNS)
    path = _next_free(name)
    return path, [path, *missing]


def clear_away(made: Sequence[Path]) -> None:
    """Remove folders that were made for a run, the innermost first, as far as they are still empty."""
    for folder in made:
        with contextlib.suppress(OSError):  # it holds something, or was never made
            folder.rmdir()


def _missing(path: Path) -> list[Path]:
    return [each for each in (path, *path.parents) if not os.path.exists(each)]  # of Path, this raises for a long name


def _next_free(name: str) -> Path:
    """Make the next numbered folder under runs/; two jobs that begin at once get one each.

    Raises:
        PlanError: it cannot be made.
    """
    number = 1
    while True:
        path = RUNS / f"{name}-{number}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise PlanError(f"cannot make the run folder {path}: {error.strerror}. Use --out.") from error
        else:
            return path
