"""Makes a key of all that a measurement hangs on: equal keys, equal programs on equal machines."""

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfold.machine.limits import available_cores, available_memory

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PROCESSORS = Path("/proc/cpuinfo")
_OF_A_PROCESSOR = ("model name", "flags", "cpu family", "model", "stepping", "Features", "CPU part", "CPU implementer")


def key_of(parts: Mapping[str, Any]) -> str:
    """Return a name for a file that differs when any part does.

    Args:
        parts: JSON, or what says by its repr what it is; where objects lie in memory is left out.
    """
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(_ADDRESS.sub("", text).encode()).hexdigest()


def code_of_nfold(folder: Path | None = None) -> str:
    """Return a text that differs when any module of nfold does, by sizes and times of change. 5 ms.

    Args:
        folder: of the package; the one that is running if not given.
    """
    top = folder or Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            state = os.stat(os.path.join(path, name))
            digest.update(f"{path}/{name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def this_machine(processors: Path = _PROCESSORS) -> dict[str, Any]:
    """Return what tells this machine, and what this process may use of it, from others.

    Args:
        processors: describes them.
    """
    share = available_cores()
    return {
        "system": list(os.uname()),
        "python": platform.python_version(),
        "processor": _first_processor(processors),
        "cores": share.cores,
        "period_s": share.period_s,
        "memory_bytes": available_memory(),
        "folder": os.getcwd(),
    }


def _first_processor(processors: Path) -> list[str]:
    try:
        first = processors.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
    except OSError:
        return [platform.processor()]
    return [line for line in first.splitlines() if line.split("\t", 1)[0].strip() in _OF_A_PROCESSOR]
