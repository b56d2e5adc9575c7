"""What users read when something goes wrong on one of four hosts: how long, and whether it says where, why, what to do.

Beside it what torchrun prints for the same program as a plain DDP script.
"""

import argparse
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
from environment import write  # noqa: E402  a script's siblings are found only after this

FAULTS = {
    "missing module": "a_module_that_is_not_installed",
    "exit at import": "licence server not reached",
    "broken item": "image 480 is truncated",
    "label out of range": "Target 7 is out of bounds",
    "no number": "nan",
    "error in forward": "these weights are cursed",
    "killed": "SIGKILL",
    "segmentation fault": "SIGSEGV|Segmentation fault",
    "exit": "exited with code 7|exitcode *: 7",
    "out of memory": "memory",
    "stopped": "not heard|silent|stopped|answer",
    "host lost": "host",
}
"""By name; and what the first cause must say."""
MOST_LINES = 6
LONG_S = 90.0
WHERE = re.compile(r"rank 2\b.*|local-2|\[rank2\]|rank *: 2 ")


def main() -> None:
    """Try all, print, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", choices=FAULTS, default=list(FAULTS))
    options.add_argument("--show", action="store_true", help="print what users read")
    chosen = options.parse_args()
    rows = []
    for fault in chosen.only:
        for tool, command in (("nfold", nfold_command()), ("torchrun", torchrun_command())):
            row, text = attempt(fault, tool, command)
            rows.append(row)
            print(row)
            if chosen.show:
                print(text)
    if set(chosen.only) == set(FAULTS):
        write({"rows": rows}, __file__)


def nfold_command() -> list[str]:
    """Four agents on this machine."""
    hosts = ["--on", "local", "--nodes", "4", "--strategy", "ring", "--hosts-within", "60"]
    return [sys.executable, "-m", "nfold", "train", str(HERE / "program.py"), *hosts]


def torchrun_command() -> list[str]:
    """Four processes on this machine."""
    return [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node",
        "4",
        str(HERE / "program.py"),
    ]


def attempt(fault: str, tool: str, command: list[str]) -> tuple[dict[str, Any], str]:
    """Run a command until it gives up."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FAULT": fault, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": folder}
        begun_s = time.perf_counter()
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            text, _ = running.communicate(timeout=LONG_S)
            ended = f"exit code {running.returncode}"
        except subprocess.TimeoutExpired:
            subprocess.run(["pkill", "-KILL", "-s", str(running.pid)], check=False)  # what is left of its session
            text, _ = running.communicate()
            ended = f"still there after {LONG_S:.0f} s"
    told = _message(text) if tool == "nfold" else text
    lines = [line for line in told.splitlines() if line.strip()]
    row = {
        "fault": fault,
        "tool": tool,
        "lines": len(lines),
        "first_line_with_cause": next((number for number, line in enumerate(lines, 1) if _tells(fault, line)), None),
        "names_rank_or_host": bool(WHERE.search(told)),
        "says_what_to_do": "nfold train --resume" in told or "nfold " in told if tool == "nfold" else False,
        "ended": ended,
        "seconds": round(time.perf_counter() - begun_s, 1),
    }
    return row, told


def _message(text: str) -> str:
    """What nfold says when it gives up, which comes last."""
    position = text.rfind("\nnfold: ")
    return text[position + 1 :] if position >= 0 or text.startswith("nfold: ") else text


def _tells(fault: str, line: str) -> bool:
    return re.search(FAULTS[fault], line) is not None


if __name__ == "__main__":
    main()
