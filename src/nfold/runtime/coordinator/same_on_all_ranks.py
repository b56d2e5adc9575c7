"""Whether all members have loaded the same program: equal data and weights, and what it makes of them. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nfold.core import codec
from nfold.core.outputs import ModuleOutput, first_difference
from nfold.errors import ProgramError

_ONE_SCRIPT = "All hosts need the same script, started in the same way."
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Other:
    """The rank or newcomer that is compared with rank 0."""

    number: int
    has_rank: bool = True

    @property
    def pair(self) -> str:
        """Both of them, in words."""
        return f"ranks 0 and {self.number}" if self.has_rank else f"rank 0 and {self}"

    def __str__(self) -> str:
        return f"{'rank' if self.has_rank else 'member'} {self.number}"


def has_own_data(ready: dict[str, Any]) -> bool:
    """Whether a rank told what lives on its node, since others have other data."""
    return ready.get("inventory") is not None


def check_own_data(mine: dict[str, Any], other: Other, theirs: dict[str, Any]) -> None:
    """Refuse data that live on one of two nodes, and on all for the other.

    Args:
        mine: told by rank 0.
        other: who told the rest.
        theirs: told by that one.

    Raises:
        ProgramError: it names whose data live on its node.
    """
    if has_own_data(mine) != has_own_data(theirs):
        raise _different(other, f"only the data of {'rank 0' if has_own_data(mine) else other} live on its node")


def joined(first: dict[str, Any]) -> dict[str, Any]:
    """Return what rank 0 told of the program, with the samples of all ranks where each has its own.

    Args:
        first: told by rank 0, and where each has its own also how many there are in all.
    """
    if not has_own_data(first):
        return first
    return {**first, "num_samples": first["total"], "items": None}


def check_alike(mine: dict[str, Any], other: Other, theirs: dict[str, Any]) -> None:
    """Compare what a rank or a newcomer told of the program with what rank 0 did.

    Where each has data of its own, the weights, the optimizer and what is evaluated are compared.

    Args:
        mine: told by rank 0.
        other: who told the rest.
        theirs: told by that one.

    Raises:
        ProgramError: with what differs first, and what to do.
    """
    check_own_data(mine, other, theirs)
    if not has_own_data(mine):
        _compare_counts(mine, other, theirs)
        _compare_orders(mine["orders"], other, theirs["orders"])
    _compare_weights(mine["weights"], other, theirs["weights"])
    if not has_own_data(mine):
        _compare_items(mine["items"], other, theirs["items"])
        _compare_first_passes(mine["first_pass"], other, theirs["first_pass"])
    _compare_functions(mine, other, theirs)
    if not has_own_data(mine):
        _compare_gradients(mine.get("gradients"), other, theirs.get("gradients"))


def _compare_counts(mine: dict[str, Any], other: Other, theirs: dict[str, Any]) -> None:
    if theirs["num_samples"] != mine["num_samples"]:
        raise _different(other, f"samples of {_whose(mine)} are {mine['num_samples']} and {theirs['num_samples']}")


def _whose(told: dict[str, Any]) -> str:
    return "train_data()" if told["orders"] is None else "an epoch"


def _compare_orders(mine: dict[str, list[int]] | None, other: Other, theirs: dict[str, list[int]] | None) -> None:
    """Refuse ranks whose samplers visit other samples.

    Raises:
        ProgramError: it names the first epoch that differs.
    """
    for epoch, found in (mine or {}).items():
        if theirs is not None and theirs[epoch] != found:
            raise ProgramError(
                f"{other.pair} visit other samples: Program(sampler=...) gave them indices of the checksums "
                f"{found[1]} and {theirs[epoch][1]} for epoch {epoch}. They must follow from its arguments alone: draw "
                "from the generator that it is given."
            )


def _compare_weights(mine: dict[str, int], other: Other, theirs: dict[str, int]) -> None:
    """Refuse ranks whose models begin differently.

    Raises:
        ProgramError: it names the first weight that differs, and its module.
    """
    for name in dict.fromkeys((*mine, *theirs)):
        if name not in mine or name not in theirs:
            raise _different(other, f"only the model of {'rank 0' if name in mine else other} has {name}")
        if mine[name] != theirs[name]:
            module = name.rpartition(".")[0] or "the model itself"
            raise _different(
                other, f"{name}, of module {module}, has first values of checksums {mine[name]} and {theirs[name]}"
            )


def _different(
    other: Other, what: str, advice: str = "Everything random in model() and train_data() must follow from the seed."
) -> ProgramError:
    return ProgramError(f"{other.pair} built different programs: {what}. {advice}")


def _compare_items(mine: dict[str, int | None], other: Other, theirs: dict[str, int | None]) -> None:
    """Refuse ranks that read different data; an item that one of them cannot read is told when it is trained with.

    Raises:
        ProgramError: it names the first item that differs.
    """
    for index, checksum in mine.items():
        if checksum is not None and theirs[index] is not None and checksum != theirs[index]:
            raise _other_data(other, f"item {index} of train_data()", checksum, theirs[index])


def _other_data(other: Other, what: str, mine: int, theirs: int | None) -> ProgramError:
    return ProgramError(
        f"{other.pair} hold different data: {what} has the checksums {mine} and {theirs}. Give all ranks the "
        "same files; what train_data() and its items draw must be drawn inside of them and not while the script is "
        "imported, from torch's, numpy's or Python's own generator, which are seeded there, or from one with a fixed "
        "seed."
    )


def _compare_first_passes(mine: dict[str, Any] | None, other: Other, theirs: dict[str, Any] | None) -> None:
    """Refuse ranks whose models compute different things; a pass that raised is told when the program is captured.

    Raises:
        ProgramError: it names the first module whose output differs.
    """
    if mine is None or theirs is None:
        return
    first, second = ([codec.decode(ModuleOutput, each) for each in told["outputs"]] for told in (mine, theirs))
    gradients, others = ([codec.decode(ModuleOutput, each) for each in told["gradients"]] for told in (mine, theirs))
    difference = first_difference(first, second)
    other_loss = first_difference(gradients, others) if gradients and others and not difference else ""
    if (difference or other_loss) and mine["samples"] != theirs["samples"]:
        raise _other_data(other, "a batch of two samples of train_data()", mine["samples"], theirs["samples"])
    if difference:
        raise ProgramError(
            f"{other.pair} compute different things from equal weights, samples and seeds: {difference}. What "
            "the model and the loss draw must come from torch's, numpy's or Python's own generator, which are seeded. "
            "Nothing may depend on earlier calls, the clock, the process or the machine."
        )
    if other_loss:
        raise _different(other, other_loss, _ONE_SCRIPT)


def _compare_functions(mine: dict[str, Any], other: Other, theirs: dict[str, Any]) -> None:
    """Refuse ranks that update weights differently, or evaluate something else.

    Raises:
        ProgramError: it names what differs first.
    """
    if mine["has_test"] != theirs["has_test"]:
        raise _different(other, f"only that of {'rank 0' if mine['has_test'] else other} has test_data", _ONE_SCRIPT)
    if set(mine["metrics"]) != set(theirs["metrics"]):
        named = " and ".join(", ".join(sorted(each["metrics"])) for each in (mine, theirs))
        raise _different(other, f"they evaluate {named}", _ONE_SCRIPT)
    if mine["stepping"] and theirs["stepping"] and (found := _other_stepping(mine["stepping"], theirs["stepping"])):
        raise _different(other, found, _ONE_SCRIPT)
    later = {step: rates for step, rates in theirs.get("rates") or ()}
    for step, rates in mine.get("rates") or ():
        if step in later and not _is_close(rates, later[step]):
            found = f"after {step} steps of the schedule the learning rates are {rates} and {later[step]}"
            raise _different(other, found, _ONE_SCRIPT)


def _other_stepping(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Return in what optimizer and schedule differ first; empty: in nothing."""
    for name in ("optimizer", "scheduler"):
        if mine[name] != theirs[name]:
            return f"Program({name}=...) gives {mine[name] or 'none'} and {theirs[name] or 'none'}"
    if len(mine["groups"]) != len(theirs["groups"]):
        return f"their optimizers have {len(mine['groups'])} and {len(theirs['groups'])} groups"
    return next(_other_settings(mine["groups"], theirs["groups"]), "")


def _other_settings(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Iterator[str]:
    for group, other in zip(mine, theirs, strict=True):
        for key in dict.fromkeys((*group, *other)):
            one, two = (each.get(key, "not there") for each in (group, other))
            if not _is_close(one, two):
                yield f"the optimizer's {key} is {one} and {two}"


def _is_close(one: Any, other: Any) -> bool:
    """Tell whether two values are equal, but for the rounding of another processor."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING**2)
    return bool(one == other)


def _compare_gradients(mine: dict[str, Any] | None, other: Other, theirs: dict[str, Any] | None) -> None:
    """Refuse a host that computes other bits than that of rank 0 (`--exact`).

    Raises:
        ProgramError: it names both hosts and what they compute with.
    """
    if mine is not None and theirs is not None and mine["checksum"] != theirs["checksum"]:
        raise ProgramError(
            f"{other.pair} compute gradients of other bits from equal weights, samples and seeds, and --exact promises "
            f"the same: {mine['machine']}, and {theirs['machine']}. Leave one of these hosts out, or train without "
            "--exact."
        )
