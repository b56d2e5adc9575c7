"""Does what README says first on a clone that has nothing installed, and times it: make demo, make test, make pure."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import ROOT, write  # noqa: E402  a script's siblings are found only after this

COMMANDS = {
    "make demo": "installs, then trains the digits three ways",
    "make test": "installs what tests need, then checks and tests",
    "make test again": "checks and tests",
    "make pure": "quick pure tests",
    "make pure LONG=1": "every pure test, all examples of each property",
}


def timed(command: str, clone: Path) -> dict[str, Any]:
    """Run a command in the clone.

    Raises:
        SystemExit: it failed.
    """
    began_s = time.perf_counter()
    done = subprocess.run(
        command.removesuffix(" again").split(), cwd=clone, env=_clean(), capture_output=True, text=True, check=False
    )
    took_s = time.perf_counter() - began_s
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    passed = [int(number) for number in re.findall(r"(\d+) passed", done.stdout)]
    print(f"{command:18} {took_s:6.0f} s  {sum(passed) or ''}", flush=True)
    return {"command": command, "what": COMMANDS[command], "took_s": took_s, "tests_passed": sum(passed)}


def accuracies(clone: Path) -> dict[str, float]:
    """Return what each of the demo's runs learnt."""
    reports = sorted(clone.glob("runs/*/*/report.json"))
    return {path.parent.name: json.loads(path.read_text())["metrics"]["accuracy"] for path in reports}


def _clean() -> dict[str, str]:
    """Nothing of the environment that this script was started from."""
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "XDG_CACHE_HOME")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def main() -> None:
    """Clone the last commit, run every command, print and write result.json."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "nfold"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        rows = [timed("make demo", clone)]
        learnt = accuracies(clone)
        print(", ".join(f"{name} {accuracy:.1%}" for name, accuracy in learnt.items()), flush=True)
        rows += [timed(command, clone) for command in COMMANDS if command != "make demo"]
    write({"commands": rows, "demo_accuracy": learnt}, __file__)


if __name__ == "__main__":
    main()
