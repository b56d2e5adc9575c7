"""Loss and metrics on the test data, over the ranks that hold the whole model, or on one that fetches it for that."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.joining import Batch
from nfold.capture.batches.tree import map_tensors, shapes_text
from nfold.capture.computing.random import LOCK, CellRandom
from nfold.capture.program.calling import call
from nfold.errors import ProgramError, one_line
from nfold.program import TEST_LOSS, Program, describe
from nfold.runtime.checkpoint.state_collection import ByteRun
from nfold.runtime.control.exact_total import add
from nfold.runtime.data.loaders import LoadersReader
from nfold.runtime.data.sample_reader import TESTING, SampleReader, evaluation_parts


def evaluate(
    program: Program,
    model: nn.Module,
    dataset: Any,
    part: int,
    num_parts: int,
    device: torch.device,
    reader: LoadersReader | None = None,
) -> dict[str, list[float]]:
    """Evaluate every `num_parts`-th batch of the test data. What a batch draws is the same in each evaluation.

    Args:
        program: of the user.
        model: to evaluate.
        dataset: the test data.
        part: which batches are meant.
        num_parts: so many ranks share them.
        device: where to compute.
        reader: reads the same data in other processes; None: this one does.

    Returns:
        name -> [sum over samples, number of samples, what rounding left out of that sum], for the loss and each metric;
        the last may be several numbers or none.

    Raises:
        ProgramError: the model, the loss or a metric raised for test data, or a metric is no number.
    """
    sums: dict[str, list[float]] = {name: [] for name in (TEST_LOSS, *program.metrics)}
    samples = 0
    reads = reader or SampleReader(dataset, program.seed, program.collate, "test_data")
    model.eval()
    try:
        with torch.no_grad():
            for number, count, batch in _batches(program, len(dataset), reads, part, num_parts, device):
                samples += count
                for name, value in _figures(program, model, number, batch).items():
                    add(sums[name], value * count)
    finally:
        model.train()
    return {name: [parts.pop() if parts else 0.0, float(samples), *parts] for name, parts in sums.items()}


def fill(model: nn.Module, all_runs: Iterable[ByteRun]) -> nn.Module:
    """Copy a whole state dict into a module, tensor by tensor as it comes, and return the module."""
    state = model.state_dict()
    for name, runs in itertools.groupby(all_runs, key=lambda run: run.name):
        own = state[name].detach()
        whole = own.contiguous()  # itself, unless its elements lie in another order than those of a file
        flat = whole.view(-1)
        for run in runs:
            values = torch.frombuffer(bytearray(run.data), dtype=own.dtype)
            start = run.start // own.itemsize
            flat[start : start + values.numel()] = values
        if whole is not own and not torch.equal(whole, own):  # an expanded constant cannot be written to
            own.copy_(whole)
    return model


def _batches(
    program: Program,
    num_samples: int,
    reader: SampleReader | LoadersReader,
    part: int,
    num_parts: int,
    device: torch.device,
) -> Iterator[tuple[int, int, Batch]]:
    """Yield the number of each batch, its samples and itself."""
    own = itertools.islice(evaluation_parts(num_samples, program.batch_size), part, None, num_parts)
    wanted, read = itertools.tee(own)
    for each, batch in zip(wanted, reader.read_all(read), strict=True):
        yield each.chunk, len(each.indices), map_tensors(lambda tensor: tensor.to(device), batch)


def _figures(program: Program, model: nn.Module, number: int, batch: Batch) -> dict[str, float]:
    """Return loss and metrics of a batch; what they draw is the same whoever computes it."""
    inputs, targets = batch
    random = CellRandom(program.seed)
    with LOCK:
        random.enter(TESTING, number)
        random.seed_everything(0)
        outputs, loss = _forward(program, model, inputs, targets)
        return {TEST_LOSS: loss} | {name: _metric(program, name, outputs, targets) for name in program.metrics}


def _forward(program: Program, model: nn.Module, inputs: Any, targets: Any) -> tuple[Any, float]:
    doing = "the model"
    try:
        outputs = call(model, inputs)
        doing = "the loss"
        return outputs, float(program.loss(outputs, targets))
    except Exception as error:
        raise ProgramError(
            f"{doing} raised {describe(error)} for items of test_data(), which are {shapes_text((inputs, targets))} as "
            "a batch. Give them the form of train_data()'s."
        ) from error


def _metric(program: Program, name: str, outputs: Any, targets: Any) -> float:
    try:
        found = program.metrics[name](outputs, targets)
    except Exception as error:
        raise ProgramError(f"the metric {name!r} raised {describe(error)}") from error
    try:
        if not isinstance(found, str | bytes):
            return float(found)
    except (TypeError, ValueError, RuntimeError):
        pass  # it is told below what it is instead
    what = f"a tensor, {shapes_text(found)}" if isinstance(found, torch.Tensor) else one_line(repr(found))
    raise ProgramError(
        f"the metric {name!r} returned {what}. It must return one number, the mean over the samples that it is given, "
        "as (outputs.argmax(1) == targets).float().mean() does."
    )
