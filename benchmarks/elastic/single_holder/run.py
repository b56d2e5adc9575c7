"""Kills the only owner of an operator while a model is trained in parts: what is lost, and what protection costs.

Three hosts of this machine (agents), a pipeline or a hypergraph, a model of some million parameters. One host is killed
(SIGKILL) under way, for each number of steps that it may cost, and once without protection.
"""

import argparse
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
from environment import write  # noqa: E402  a script's siblings are found only after this

SCRIPT = """
import torch
from torch import nn
import nfold

def model():
    layers = [layer for _ in range({depth}) for layer in (nn.Linear({width}, {width}), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear({width}, 10))

def program():
    torch.manual_seed(3)
    inputs, targets = torch.randn(512, {width}), torch.randint(0, 10, (512,))
    return nfold.Program(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        train_data=lambda: torch.utils.data.TensorDataset(inputs, targets),
        batch_size=64,
        seed=1,
    )
"""
DEPTH = 6
TICK = threading.Event()
"""Never set: to look again after a while."""


def start(script: Path, out: Path, strategy: str, protect: str, steps: int) -> "subprocess.Popen[str]":
    """Start a run on three hosts of this machine, of which one may be lost."""
    flags = ["--on", "local", "--nodes", "2:3", "--strategy", strategy, "--protect", protect, "--steps", str(steps)]
    command = [sys.executable, "-m", "nfold.cli.main", "train", str(script), *flags]
    command += ["--checkpoint-every", "100000", "--out", str(out)]
    text: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    cache = str(out.with_name("cache"))  # agents keep the program there
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": cache}, **text)


def steps_of(out: Path) -> list[dict[str, Any]]:
    """Return the steps of a run that are on disk."""
    path = out / "history.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def agents_of(process: "subprocess.Popen[str]") -> dict[str, int]:
    """Return the agents of a run, which are its children, by the name of their host."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_text(encoding="utf-8").split("\0")
            parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (OSError, UnicodeDecodeError):
            continue  # it has ended just now, or is not ours
        if parent == process.pid and "--name" in words:
            found[words[words.index("--name") + 1]] = int(folder.name)
    return found


def measured(script: Path, out: Path, strategy: str, protect: str, steps: int) -> dict[str, Any]:
    """Kill a host in the middle of a run, and return what that cost."""
    process, said = start(script, out, strategy, protect, steps), []
    assert process.stdout is not None
    ear = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
    ear.start()
    while len(steps_of(out)) < steps // 2:
        if process.poll() is not None:
            sys.exit("it ended by itself:\n" + "".join(said))
        TICK.wait(0.05)
    os.kill(agents_of(process)["local-1"], signal.SIGKILL)
    process.wait(600)
    ear.join()
    if process.returncode:
        sys.exit("".join(said))
    events = map(json.loads, (out / "events.jsonl").read_text("utf-8").splitlines())
    (loss,) = [event for event in events if event["kind"] == "loss"]
    told = next((line for line in said if "ranks keep a snapshot" in line), "")
    times = [step["at_s"] for step in steps_of(out) if not step["metrics"]][10:]
    paces = [later - earlier for earlier, later in itertools.pairwise(times)]
    usage = json.loads((out / "trace.json").read_text(encoding="utf-8"))["usage"]
    return {
        "strategy": strategy,
        "protect": protect,
        "steps_again": loss["steps_again"],
        "from": loss["again_from"],
        "pause_s": round(loss["pause_s"], 3),
        "step_ms": round(1e3 * statistics.median(paces), 2),
        "snapshot": re.sub(r".*takes (.*): a lost.*", r"\1", told).strip(),
        "peak_mb": max(each["peak_rss_bytes"] >> 20 for each in usage),
    }


def main() -> None:
    """Measure each strategy at each number of steps, print a line for each, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--width", type=int, default=1024, help="of each of the layers: 1024 is 6.3 million parameters"
    )
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--strategies", default="pipeline,hypergraph")
    options.add_argument("--protect", default="off,1,10,100")
    given = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as where:
        script = Path(where) / "wide.py"
        script.write_text(SCRIPT.format(width=given.width, depth=DEPTH), encoding="utf-8")
        for strategy in given.strategies.split(","):
            for protect in given.protect.split(","):
                rows.append(measured(script, Path(where) / f"{strategy}-{protect}", strategy, protect, given.steps))
                print(json.dumps(rows[-1]), flush=True)
    write({"width": given.width, "steps": given.steps, "rows": rows}, __file__)


if __name__ == "__main__":
    main()
