"""Compares the parameters of distributed runs with those of one plain PyTorch loop over the same chunks."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

import nfold
from nfold.core.placement import chunk_sizes
from nfold.program import Program, ProgramSource
from nfold.runtime.data import sample_order

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

SCRIPT = HERE / "programs.py"
TOLERANCE = 1e-9
LAYOUTS = (("single", 1), ("ring", 2), ("ring", 3), ("ps", 2), ("ps", 3))
State = dict[str, torch.Tensor]


def plain_loop(program: Program, num_steps: int) -> State:
    """Train on one device: a chunk's mean loss counts by its share of the batch."""
    torch.manual_seed(program.seed)
    model = program.model()
    optimizer = program.optimizer(list(model.parameters()))
    dataset: Any = program.train_data()
    model.train()
    for indices in _batches(len(dataset), program, num_steps):
        optimizer.zero_grad()
        start = 0
        for size in chunk_sizes(len(indices), program.chunks or 1):
            if not size:
                continue
            inputs, targets = default_collate([dataset[index] for index in indices[start : start + size]])
            (program.loss(model(inputs), targets) * (size / len(indices))).backward()
            start += size
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def distributed(name: str, strategy: str, num_workers: int, num_steps: int) -> State:
    """Train the same program with nfold."""
    with tempfile.TemporaryDirectory() as folder:
        run = nfold.train(
            f"{SCRIPT}:{name}", workers=num_workers, strategy=strategy, steps=num_steps, out=Path(folder) / "run"
        )
        return run.state_dict()


def difference(state: State, reference: State) -> float:
    """Return the largest difference of any tensor over its largest value."""
    assert state.keys() == reference.keys()
    worst = 0.0
    for name, value in reference.items():
        gap = (state[name].double() - value.double()).abs().max().item()
        worst = max(worst, gap / max(value.double().abs().max().item(), 1e-300) if gap else 0.0)
    return worst


def measure(name: str, num_steps: int) -> dict[str, Any]:
    """Run one program every way and compare each with the reference."""
    against = "single" if name == "dropout" else "plain loop"
    program = ProgramSource.parse(f"{SCRIPT}:{name}").load()
    # Random numbers belong to (step, chunk, draw) in nfold and to the order of calls in a plain loop.
    reference = distributed(name, "single", 1, num_steps) if name == "dropout" else plain_loop(program, num_steps)
    rows = []
    for strategy, num_workers in LAYOUTS:
        if name == "dropout" and strategy == "single":
            continue
        error = difference(distributed(name, strategy, num_workers, num_steps), reference)
        allowed = 0.0 if name == "integer" else TOLERANCE
        rows.append({"strategy": strategy, "ranks": num_workers, "relative_error": error, "ok": error <= allowed})
        print(f"{name:9} {strategy:7} {num_workers} ranks  against the {against}: {error:.1e}", flush=True)
    return {"against": against, "runs": rows}


def main() -> None:
    """Measure, print, write result.json, and fail if a promise is broken."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=20)
    num_steps = options.parse_args().steps
    names = ("plain", "residual", "dropout", "tied", "integer")
    programs = {name: measure(name, num_steps) for name in names}
    write({"steps": num_steps, "tolerance": TOLERANCE, "programs": programs}, __file__)
    broken = [name for name in names if not all(row["ok"] for row in programs[name]["runs"])]
    if broken:
        sys.exit(f"differs by more than allowed: {', '.join(broken)}")


def _batches(num_samples: int, program: Program, num_steps: int) -> list[list[int]]:
    batches: list[list[int]] = []
    epoch = 0
    while len(batches) < num_steps:
        order = sample_order(num_samples, epoch, program.seed)
        batches += [order[i : i + program.batch_size] for i in range(0, num_samples, program.batch_size)]
        epoch += 1
    return batches[:num_steps]


if __name__ == "__main__":
    main()
