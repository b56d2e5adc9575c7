"""The same training on one device without a limit: a plain PyTorch loop over whole batches."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch.utils.data import default_collate

from nfold.capture.program.building import build_model
from nfold.program import Program
from nfold.runtime.data.chunk_loader import sample_order


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """What one device comes to."""

    losses: tuple[float, ...]
    """Of each step."""
    state: dict[str, torch.Tensor]


def loaded(script: Path) -> ModuleType:
    """Import a program's file."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{script} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained_alone(program: Program, steps: int) -> Alone:
    """Take the same samples in the same order; within the first epoch."""
    dataset, size = program.train_data(), program.batch_size
    if steps * size > len(dataset):
        raise SystemExit(f"{steps} steps of {size} samples are more than an epoch of {len(dataset)}")
    model = build_model(program, torch.device("cpu"))
    optimizer = program.optimizer(list(model.parameters()))
    order, losses = sample_order(len(dataset), 0, program.seed), []
    for step in range(steps):
        inputs, targets = default_collate([dataset[index] for index in order[step * size :][:size]])
        optimizer.zero_grad()
        loss = program.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Alone(losses=tuple(losses), state=model.state_dict())
