"""Looks at trained weights before they are saved: whether ranks hold the same ones, and whether they are numbers.

Every rank that computes a parameter updates its own copy by the same sums, so copies stay equal without a message. An
optimizer that draws numbers of its own, or reads a clock, is not repeatable, and breaks that without a word. So each
rank sends fingerprints along with its part of the state, and rank 0 looks at them before anything is saved.
"""

import math
import zlib
from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.linalg import vector_norm

from nfold.capture.computing.step_outcome import pieces
from nfold.core.placement import Reduction
from nfold.runtime.checkpoint.joined_facts import Fingerprints

NUM_SAMPLES = 16
_BLOCK = 1 << 16
"""Elements that are added at once: as many as a cache holds in double precision."""


def fingerprints(rank: int, reductions: Iterable[Reduction], parameters: Mapping[str, nn.Parameter]) -> Fingerprints:
    """Return fingerprints of the parameters that a rank computes together with others. One pass over each."""
    shared = [each for each in reductions if rank in each.members and len(each.members) > 1]
    return {
        name: _fingerprint(parameters[name].detach(), is_exact=each.fraction_bits is not None)
        for each in shared
        for name in each.parameters
    }


def first_diverged(rank: int, reductions: Iterable[Reduction], parameters: Mapping[str, nn.Parameter]) -> str:
    """Return the first trained parameter that holds NaN or an infinite value, or "". One pass over a rank's own.

    Of those that several ranks hold, the first rank looks for all.
    """
    own = (name for each in reductions if each.members[0] == rank for name in each.parameters)
    return next((name for name in own if not _is_finite(parameters[name].detach())), "")


def _is_finite(tensor: torch.Tensor) -> bool:
    if not tensor.numel():
        return True
    bounds = (bound for piece in pieces(_real(tensor)) for bound in torch.aminmax(piece))  # NaN if there is one
    return all(map(math.isfinite, map(float, bounds)))


def _fingerprint(tensor: torch.Tensor, *, is_exact: bool) -> list[float]:
    values = _real(tensor).reshape(-1)
    tolerance = 0.0 if is_exact else torch.finfo(values.dtype).eps ** 0.5
    chosen = values[:: max(1, values.numel() // NUM_SAMPLES)][:NUM_SAMPLES]
    sums = (_checksum(values), 0.0) if is_exact else _sums(values)
    return [*sums, tolerance, *chosen.double().tolist()]


def _sums(values: torch.Tensor) -> tuple[float, float]:
    """Return the sum, and that of absolute values. Processors add in different orders, so last bits differ."""
    blocks = torch.split(values, _BLOCK)
    whole = sum(float(each.sum(dtype=torch.float64)) for each in blocks)
    return whole, sum(float(vector_norm(each, 1, dtype=torch.float64)) for each in blocks)


def _checksum(values: torch.Tensor) -> float:
    """Return a number that is the same only where all bits are, on any processor."""
    return float(zlib.crc32(values.cpu().contiguous().view(torch.uint8).numpy().data))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
