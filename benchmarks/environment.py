"""What a benchmark ran on, and how its result is written and read."""

import atexit
import json
import os
import platform
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]


def keep_runs_apart() -> None:
    """Let no run use what an earlier one measured, as what cannot be written is not kept; list none with the user's."""
    folder = Path(tempfile.mkdtemp(prefix="nfold-benchmark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "nfold").write_text("a file where the cache's folder would be", encoding="utf-8")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")


keep_runs_apart()


def environment() -> dict[str, Any]:
    """Describe the machine and the versions that matter for a figure."""
    return {
        **stamp(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def stamp() -> dict[str, str]:
    """Say which code is measured, and when: a figure is as old as the code that it judges.

    A result that is measured in pieces has a stamp for each piece; the file's own is that of the last.
    """
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown: not a git checkout"
    edited = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/**/*.py")
    return {"commit": f"{commit}, edited" if edited else commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}


def write(result: dict[str, Any], beside: str) -> None:
    """Write result.json next to a script, with its environment, and say where."""
    path = _result(beside)
    path.write_text(json.dumps({**result, "environment": environment()}, indent=1) + "\n")
    print(f"wrote {path.parent.name}/{path.name}")


def known(beside: str) -> dict[str, Any]:
    """Return what result.json next to a script holds; nothing where there is none yet."""
    path = _result(beside)
    return json.loads(path.read_text()) if path.exists() else {}


def _result(beside: str) -> Path:
    return Path(beside).with_name("result.json")


def _git(*arguments: str) -> str:
    """Return what git says, or nothing where there is no git or no repository."""
    try:
        told = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return told.stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
