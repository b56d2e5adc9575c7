"""Lets one job at a time write to a folder."""

import fcntl
import os
from pathlib import Path

from nfold.errors import PlanError


def lock(path: Path) -> int:
    """Keep other jobs from writing to a folder; return the descriptor that holds the lock until it is closed.

    Raises:
        PlanError: another job is writing there.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise PlanError(
            f"another job is writing to {path} right now. Wait for its end, or use another --out."
        ) from error
    except OSError:
        pass  # a file system without locks: nobody can be kept out
    return descriptor
