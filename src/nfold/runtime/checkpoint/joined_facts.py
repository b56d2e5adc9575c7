"""Joins what ranks say beside tensors into what a checkpoint says, where they agree. Needs no torch.

Each rank sends fingerprints along with its part of the state (`agreement.py`), which are looked at before anything is
kept.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nfold.core.graph import ModelGraph
from nfold.errors import NonFiniteLoss, ProgramError

WHOLE = "state_dict"
FINGERPRINTS = "fingerprints"
EXTRAS = "extras"
DIVERGED = "diverged"
UNKEPT = "unkept"
"""Why nobody could go on from this: the file is dropped."""

Fingerprints = dict[str, list[float]]
"""By parameter: sum and sum of absolute values, or a checksum and 0 (`--exact`); the tolerance; single elements."""


def fingerprints_of(facts: Mapping[str, Any]) -> Fingerprints:
    """Return the fingerprints that a rank sent with its facts."""
    found: Fingerprints = facts[FINGERPRINTS]
    return found


def join_facts(facts: Sequence[Mapping[str, Any]], step: int, chunks: int) -> dict[str, Any]:
    """Return what a checkpoint says beside its tensors, from what all ranks say.

    Raises:
        NonFiniteLoss: training diverged, so there is nothing to keep.
    """
    check_finite((each[DIVERGED] for each in facts), step)
    joined: dict[str, Any] = {"step": step, "chunks": chunks, "optimizer": "", "scalars": {}, "groups": {}}
    joined[EXTRAS] = {}
    for each in facts:
        joined["optimizer"] = joined["optimizer"] or each["optimizer"]
        joined["scalars"] |= each["scalars"]
        joined["groups"] |= each["groups"]
        if each.get(WHOLE) is not None:
            joined[WHOLE] = each[WHOLE]
        joined[EXTRAS] |= each[EXTRAS]
        if each[UNKEPT]:
            joined.setdefault(UNKEPT, each[UNKEPT])
    return joined


def check_agreement(parts: Sequence[Fingerprints], graph: ModelGraph, step: int) -> None:
    """Compare all ranks' fingerprints.

    Copies may differ in their last bits, since processors of different kinds round differently, and no more; with
    `--exact` not in these either.

    Raises:
        ProgramError: two ranks hold different values; the first parameter in the order of the model is named.
    """
    for parameter in graph.parameters:
        held = [(rank, part[parameter.name]) for rank, part in enumerate(parts) if parameter.name in part]
        for rank, found in held[1:]:
            first, expected = held[0]
            if not _alike(expected, found):
                told = "add up to" if expected[2] else "have the checksums"
                raise ProgramError(
                    f"ranks {first} and {rank} hold different values of {parameter.name}, which operator "
                    f"{parameter.users[0]} uses, after {step} steps: they {told} {expected[0]:.10g} and "
                    f"{found[0]:.10g}. Both were updated with the same gradients, so something in the program is not "
                    "repeatable: an optimizer or a hook that draws numbers of its own or reads the time, the host or "
                    "the rank. Make it depend on nothing else than gradients and values, or use -n 1 --strategy single."
                )


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
