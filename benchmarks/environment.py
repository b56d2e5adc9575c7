"""What a benchmark ran on, and how its result is written."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Describe the machine and the versions that matter for a figure."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def write(result: dict[str, Any], beside: str) -> None:
    """Write result.json next to a script, with its environment, and say where."""
    path = Path(beside).with_name("result.json")
    path.write_text(json.dumps({"environment": environment(), **result}, indent=1) + "\n")
    print(f"wrote {path.parent.name}/{path.name}")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
