"""Gradients of a few agreed samples at the first weights: do hosts compute the same bits, and how large are they?

Kernels round as processor, torch and number of threads have them. So under `--exact` each member computes one small
batch and tells the checksum of all gradients, and with which unit their sums are whole numbers. All of it follows from
the program alone, so a run that goes on comes to the same unit again.
"""

import contextlib
import math
import platform
import zlib
from collections.abc import Iterator
from typing import Any

import torch

from nfold.capture.computing.random import LOCK, CellRandom, RandomState
from nfold.capture.example_batches import program_batches
from nfold.capture.program.building import build_model
from nfold.capture.program.calling import call
from nfold.errors import ProgramError
from nfold.program import Program, describe

FEW = 32
"""Samples, or all of a batch where it has fewer, or where the program computes on nothing less."""
BITS = 40
"""Below the largest gradient: it is off by 2^-41 of it at most. There is room for gradients 2^20 times as large."""
_MOST_BITS = 900
"""So that the unit and what is multiplied by it are doubles."""


def agreed_gradients(program: Program, dataset: Any, device: torch.device) -> dict[str, Any]:
    """Return what a member tells of the gradients that it computes, as JSON values.

    Args:
        program: the user's.
        dataset: of training samples.
        device: where to compute.

    Raises:
        ProgramError: it is no processor, or the pass raised.
    """
    if device.type != "cpu":
        raise ProgramError(
            f"--exact needs kernels that add in one order, which those of {device.type} do not promise. "
            "Add --device cpu."
        )
    with as_in_a_step():
        gradients = _first_fitting(program, dataset)
    checksum = 0
    for gradient in gradients:
        checksum = zlib.crc32(gradient.contiguous().view(-1).view(torch.uint8).numpy().data, checksum)
    sizes = [float(each.abs().max()) for each in gradients if each.numel() and not each.is_complex()]
    return {
        "checksum": checksum,
        "fraction_bits": fraction_bits(max(sizes, default=0.0)),
        "machine": f"{platform.node()}: {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}",
    }


@contextlib.contextmanager
def as_in_a_step() -> Iterator[None]:
    """Compute with one thread, as ranks will, and leave random numbers as they were."""
    with LOCK, torch.enable_grad():
        before, threads = RandomState(), torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            before.restore()


def fraction_bits(largest: float) -> int:
    """Return with how many binary places gradients are summed, of which the largest is of this size."""
    if not math.isfinite(largest) or largest == 0.0:
        return BITS
    return max(-_MOST_BITS, min(_MOST_BITS, BITS - math.frexp(largest)[1]))


def _first_fitting(program: Program, dataset: Any) -> list[torch.Tensor]:
    few = min(FEW, program.batch_size)
    try:
        return _gradients(program, dataset, few)
    except Exception as error:
        if few < program.batch_size:
            try:
                return _gradients(program, dataset, program.batch_size)
            except Exception:  # what a few samples raised is told
                pass
        raise ProgramError(f"a first backward pass, as --exact needs, raised {describe(error)}") from error


def _gradients(program: Program, dataset: Any, size: int) -> list[torch.Tensor]:
    """Return the gradients of all weights that have one, dense, in the order of the model."""
    model, random = build_model(program, torch.device("cpu")), CellRandom(program.seed)
    inputs, targets = program_batches(program, dataset).batch(size)
    random.enter(0, 0)
    random.seed_everything(0)
    torch.autograd.backward(program.loss(call(model, inputs), targets))
    found = (parameter.grad for parameter in model.parameters() if parameter.grad is not None)
    return [each.to_dense() if each.is_sparse else each for each in found]
