"""Looks at trained weights before they are saved: whether ranks hold the same ones, and whether they are numbers.

Every rank that computes a parameter updates its own copy by the same sums, so copies stay equal without a message. An
optimizer that draws numbers of its own, or reads a clock, is not repeatable, and breaks that without a word. So each
rank sends fingerprints along with its part of the state, and rank 0 looks at them before anything is saved.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from nfold.capture.computing.step_outcome import pieces
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.errors import NonFiniteLoss, ProgramError

NUM_SAMPLES = 16

Fingerprints = dict[str, list[float]]
"""By parameter: sum, sum of absolute values, the tolerance, then single elements. All in double precision."""


def fingerprints(rank: int, reductions: Iterable[Reduction], parameters: Mapping[str, nn.Parameter]) -> Fingerprints:
    """Return fingerprints of the parameters that a rank computes together with others. One pass over each."""
    shared = [name for each in reductions if rank in each.members and len(each.members) > 1 for name in each.parameters]
    return {name: _fingerprint(parameters[name].detach()) for name in shared}


def check_agreement(parts: Sequence[Fingerprints], graph: ModelGraph, step: int) -> None:
    """Compare all ranks' fingerprints.

    Copies may differ in their last bits, since processors of different kinds round differently, and no more.

    Raises:
        ProgramError: two ranks hold different values; the first parameter in the order of the model is named.
    """
    for parameter in graph.parameters:
        held = [(rank, part[parameter.name]) for rank, part in enumerate(parts) if parameter.name in part]
        for rank, found in held[1:]:
            first, expected = held[0]
            if not _alike(expected, found):
                raise ProgramError(
                    f"ranks {first} and {rank} hold different values of {parameter.name}, which operator "
                    f"{parameter.users[0]} uses, after {step} steps: they add up to {expected[0]:.9g} and "
                    f"{found[0]:.9g}. Both were updated with the same gradients, so something in the program is not "
                    "repeatable: an optimizer or a hook that draws numbers of its own or reads the time, the host or "
                    "the rank. Make it depend on nothing else than gradients and values, or use -n 1 --strategy single."
                )


def first_diverged(rank: int, reductions: Iterable[Reduction], parameters: Mapping[str, nn.Parameter]) -> str:
    """Return the first trained parameter that holds NaN or an infinite value, or "". One pass over a rank's own.

    Of those that several ranks hold, the first rank looks for all.
    """
    own = (name for each in reductions if each.members[0] == rank for name in each.parameters)
    return next((name for name in own if not _is_finite(parameters[name].detach())), "")


def check_finite(diverged: Iterable[str], step: int) -> None:
    """Refuse to keep what no training can go on from.

    Raises:
        NonFiniteLoss: a rank has found such a parameter.
    """
    name = next(filter(None, diverged), "")
    if name:
        raise NonFiniteLoss(
            f"training diverged: {name} holds NaN or infinite values after {step} steps. "
            "A smaller learning rate or gradient clipping often helps."
        )


def _is_finite(tensor: torch.Tensor) -> bool:
    return all(bool(torch.isfinite(piece).all()) for piece in pieces(tensor))


def _fingerprint(tensor: torch.Tensor) -> list[float]:
    values = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    tolerance = torch.finfo(values.dtype).eps ** 0.5
    chosen = values[:: max(1, values.numel() // NUM_SAMPLES)][:NUM_SAMPLES]
    sums = [float(values.sum(dtype=torch.float64)), float(values.abs().sum(dtype=torch.float64))]
    return [*sums, tolerance, *chosen.double().tolist()]


def _alike(one: list[float], other: list[float]) -> bool:
    total, tolerance = max(one[1], other[1]), one[2]
    largest = max((abs(value) for value in [*one[3:], *other[3:]]), default=0.0)
    sums_agree = all(_close(a, b, tolerance * total) for a, b in zip(one[:2], other[:2], strict=True))
    return sums_agree and all(_close(a, b, tolerance * largest) for a, b in zip(one[3:], other[3:], strict=True))


def _close(one: float, other: float, tolerance: float) -> bool:
    """Whether two values are alike; those that are no numbers are, if both are none."""
    if math.isfinite(one) and math.isfinite(other):
        return not abs(one - other) > tolerance  # a tolerance that is no number leaves nothing to tell
    return one == other or (math.isnan(one) and math.isnan(other))
