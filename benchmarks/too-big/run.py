"""Trains a model whose training state no node has room for: inside the limits, stopped and gone on with.

On an emulated cluster (Linux, root). Beside it the same steps on one device without a limit, to compare.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

PROGRAM, CLUSTER = str(HERE / "program.py"), str(HERE / "cluster.toml")
STEPS, FIRST_STEPS = 6, 4
CHUNKS = 4
MIB = 2**20


def nfold(*arguments: str, expected: int = 0) -> str:
    """Run a command and return what it said."""
    command = [sys.executable, "-m", "nfold.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stderr


def refused() -> str:
    """What data parallelism is told."""
    told = nfold("train", PROGRAM, "--emulate", CLUSTER, "--strategy", "ring", "--steps", "1", expected=2)
    return told[told.index("--strategy ring") :].strip()


def trained(folder: Path) -> dict[str, Any]:
    """Train some steps, go on in a second command, and say what each rank held at most."""
    run = str(folder / "limited")
    nfold("train", PROGRAM, "--emulate", CLUSTER, "--steps", str(FIRST_STEPS), "--chunks", str(CHUNKS), "--out", run)
    first = usage(folder / "limited")
    nfold("train", "--resume", run, "--steps", str(STEPS))
    return {"first": first, "resumed": usage(folder / "limited")}


def usage(folder: Path) -> dict[str, Any]:
    """Predicted and measured peaks of a run's ranks, from the end of building on."""
    plan, trace = (json.loads((folder / name).read_text()) for name in ("plan.json", "trace.json"))
    measured = {each["rank"]: each["peak_rss_bytes"] for each in trace["usage"]}
    return {
        "strategy": plan["strategy"],
        "predicted_mib": [round(size / MIB) for size in plan["predicted"]["peak_memory_bytes"]],
        "measured_mib": [round(measured[rank] / MIB) for rank in sorted(measured)],
    }


def difference(folder: Path) -> dict[str, float]:
    """Compare with the same steps on one device without a limit; both models load into the plain module."""
    import importlib.util

    nfold("train", PROGRAM, "-n", "1", "--steps", str(STEPS), "--chunks", str(CHUNKS), "--out", str(folder / "alone"))
    spec = importlib.util.spec_from_file_location("program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    states = [load_file(folder / name / "model.safetensors") for name in ("limited", "alone")]
    outputs = []
    for state in states:
        model = module.model()
        model.load_state_dict(state)
        with torch.no_grad():
            outputs.append(model(module.samples(16, 3).tensors[0]))
    pairs = [(states[0][name], states[1][name]) for name in states[1]]
    return {
        "parameters": max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs),
        "outputs": float((outputs[0] - outputs[1]).abs().max() / outputs[1].abs().max()),
    }


def main() -> None:
    """Do all of it and write result.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {"refused": refused(), "trained": trained(folder), "largest_relative_difference": difference(folder)}
    print(json.dumps(result, indent=1))
    write(result, __file__)


if __name__ == "__main__":
    main()
