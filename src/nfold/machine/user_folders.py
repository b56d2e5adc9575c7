"""Where a user's programs keep their files, by the XDG Base Directory Specification (freedesktop.org, version 0.8)."""

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where nfold keeps what can be made anew; None: nowhere, since there is no home."""
    return _folder(environment, "XDG_CACHE_HOME", ".cache")


def state_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where nfold keeps what it remembers of runs; None: nowhere, since there is no home."""
    return _folder(environment, "XDG_STATE_HOME", ".local/state")


def _folder(environment: Mapping[str, str], variable: str, below_home: str) -> Path | None:
    named = environment.get(variable, "")
    if os.path.isabs(named):  # the specification has others ignored
        return Path(named, "nfold")
    home = os.path.expanduser("~")
    return Path(home, below_home, "nfold") if os.path.isabs(home) else None
