"""Trains models whose training state no node has room for: inside the limits, stopped and gone on with.

    layers   many layers, of which each node has room for some
    layer    one layer that is larger than any node as soon as it trains: it must be cut into parts

On an emulated cluster (Linux, root). Beside it the same steps on one device without a limit, which must come to the
same losses.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from alone import Alone, loaded, trained_alone
from safetensors.torch import load_file
from torch.utils.data import default_collate

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this

STEPS, FIRST_STEPS = 6, 4
CHUNKS = 4
MIB = 2**20
NUM_COMPARED = 16
"""Of the test data: what both models make of them."""
LOSS_TOLERANCE = 1e-5
"""Relative: one device sums in another order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A program, nodes that are too small for it, and what they are too small for."""

    program: Path
    cluster: Path
    refused: str
    """A strategy to ask for by name, in vain."""
    no_room: tuple[str, ...]
    """Strategies that `auto` must turn down since they have no room."""
    parts_of: str | None = None
    """The operator that `auto` must cut."""


CASES = {
    "layers": Case(
        program=HERE / "program.py", cluster=HERE / "cluster.toml", refused="ring", no_room=("single", "ring")
    ),
    "layer": Case(
        program=HERE / "wide.py",
        cluster=HERE / "wide.toml",
        refused="hybrid",  # whole layers, in any mixture with data parallelism
        no_room=("single", "ring", "ps", "hybrid"),
        parts_of="0",
    ),
}


def nfold(*arguments: str, expected: int = 0) -> str:
    """Run a command and return what it said."""
    command = [sys.executable, "-m", "nfold.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stderr


def refused(case: Case) -> str:
    """What a strategy is told that is asked for by name."""
    told = nfold(*_given(case), "--strategy", case.refused, "--steps", "1", expected=2)
    return told[told.index(f"--strategy {case.refused}") :].strip()


def _given(case: Case) -> tuple[str, ...]:
    return ("train", str(case.program), "--emulate", str(case.cluster), "--chunks", str(CHUNKS))


def trained(case: Case, run: Path) -> dict[str, Any]:
    """Train some steps, go on in a second command, and say what each rank held at most."""
    nfold(*_given(case), "--steps", str(FIRST_STEPS), "--out", str(run))
    first = usage(run)
    nfold("train", "--resume", str(run), "--steps", str(STEPS))
    return {"first": first, "resumed": usage(run)}


def turned_down(case: Case, run: Path) -> dict[str, str]:
    """Why `auto` did without each other strategy; one that has room after all ends the program."""
    plan = json.loads((run / "plan.json").read_text())
    why = {each["strategy"]: each["why"] for each in plan["rejected"]}
    roomy = [name for name in case.no_room if " MiB" not in why.get(name, "")]
    if roomy:
        raise SystemExit(
            f"these were not turned down for want of memory: { ({name: why.get(name) for name in roomy}) }"
        )
    if case.parts_of is not None and case.parts_of not in plan["splits"]:
        raise SystemExit(f"operator {case.parts_of} was not cut into parts, only these were: {plan['splits']}")
    return {name: why[name] for name in case.no_room}


def usage(run: Path) -> dict[str, Any]:
    """Predicted and measured peaks of a run's ranks, from the end of building on."""
    plan, trace = (json.loads((run / name).read_text()) for name in ("plan.json", "trace.json"))
    measured = {each["rank"]: each["peak_rss_bytes"] for each in trace["usage"]}
    return {
        "strategy": plan["strategy"],
        "parts": plan["splits"],
        "predicted_mib": [round(size / MIB) for size in plan["predicted"]["peak_memory_bytes"]],
        "measured_mib": [round(measured[rank] / MIB) for rank in sorted(measured)],
    }


def losses_of(run: Path) -> list[float]:
    """The loss of each step of a run, without what was evaluated between them."""
    lines = (json.loads(line) for line in (run / "history.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if not line["metrics"]]


def compared(found: list[float], alone: Alone) -> dict[str, Any]:
    """Hold a run's losses against those of one device; a difference that is not rounding ends the program."""
    worst = max(abs(one - other) / abs(other) for one, other in zip(found, alone.losses, strict=True))
    if worst > LOSS_TOLERANCE:
        raise SystemExit(f"losses differ by {worst:.1e}: {found} where one device has {list(alone.losses)}")
    return {"run": found, "one_device": list(alone.losses), "largest_relative_difference": worst}


def difference(case: Case, run: Path, alone: Alone) -> dict[str, float]:
    """Compare the trained weights, and what they make of new samples; both load into the plain module."""
    program = loaded(case.program).program()
    inputs = default_collate([program.test_data()[index][0] for index in range(NUM_COMPARED)])
    states, outputs = (load_file(run / "model.safetensors"), alone.state), []
    for state in states:
        model = program.model()
        model.load_state_dict(state)
        with torch.no_grad():
            outputs.append(model(inputs))
    pairs = [(states[0][name], states[1][name]) for name in states[1]]
    return {
        "parameters": max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs),
        "outputs": float((outputs[0] - outputs[1]).abs().max() / outputs[1].abs().max()),
    }


def play(case: Case) -> Iterator[tuple[str, Any]]:
    """Yield what one program comes to, a finding at a time."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "limited"
        yield "trained", trained(case, run)
        yield "turned_down", turned_down(case, run)
        alone = trained_alone(loaded(case.program).program(), STEPS)
        yield "losses", compared(losses_of(run), alone)
        yield "largest_relative_difference", difference(case, run, alone)
        yield "refused", refused(case)


def main() -> None:
    """Play the cases and write result.json after each; the others stay in it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    cases: dict[str, Any] = known(__file__).get("cases", {})
    for name in options.parse_args().cases:
        found: dict[str, Any] = {**stamp()}
        for what, value in play(CASES[name]):
            found[what] = value
            print(f"{name}, {what}: {json.dumps(value)}", flush=True)
        cases[name] = found
        write({"cases": cases}, __file__)


if __name__ == "__main__":
    main()
