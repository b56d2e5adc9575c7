"""Computes numbers that are made of data, or of what the model gives to the loss, as the proof wrote them down.

A program is JSON: operators in the order of their calls, and which result is the number. An argument is a number, a
text, a list, or

    {"step": 3, "out": 0}       a result of an operator before
    {"data": [1, "labels"]}     a tensor of inputs (0), targets (1) or outputs (2)
    {"size": [4, 0]}            4 x the number of samples + 0
    {"length": [1], "dim": 1, "times": 2, "plus": -1}
                                2 x the length of a tensor of the data along a dimension - 1
    {"dtype": "int64"}          a type
    {"constant": [..], "dtype": "float32"}
"""

import json
from collections.abc import Sequence
from typing import Any

import torch

from nfold.core.condition import Condition

_FITS = 1e-6

Path = Sequence[Any]
"""Keys that lead to a tensor of the data; the first is INPUTS, 1 for targets, or OUTPUTS."""
INPUTS, OUTPUTS = 0, 2


def parts_needed(program: str) -> set[int]:
    """Return which of inputs (0), targets (1) and outputs (2) a number is made of; the last are known after forward."""

    def found(value: Any) -> set[int]:
        if isinstance(value, dict):
            paths = [value[key] for key in ("data", "length") if isinstance(value.get(key), list)]
            return {path[0] for path in paths}.union(*map(found, value.values()))
        return set[int]().union(*map(found, value)) if isinstance(value, list) else set()

    return found(json.loads(program))


def computed(program: str, batch: Sequence[Any], size: int) -> float:
    """Compute the number for a batch of `size` samples from inputs, targets and, where they are needed, outputs."""
    results: list[Any] = []
    written = json.loads(program)

    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return [decode(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "step" in value:
            result = results[value["step"]]
            return result[value["out"]] if isinstance(result, (tuple, list)) else result
        if "data" in value:
            found = _at(batch, value["data"])
            return found.cpu() if isinstance(found, torch.Tensor) else found  # as constants are
        if "size" in value:
            times, plus = decode(value["size"])
            return times * size + plus
        if "length" in value:
            length = _at(batch, value["length"]).shape[value["dim"]]
            return value["times"] * length + value["plus"]
        if "constant" in value:
            return torch.tensor(value["constant"], dtype=getattr(torch, value["dtype"]))
        return getattr(torch, value["dtype"])

    with torch.no_grad():
        for step in written["steps"]:
            keywords = {name: decode(each) for name, each in step["kwargs"].items()}
            results.append(_operator(step["op"])(*decode(step["args"]), **keywords))
    return float(decode(written["result"]))


def broken(conditions: Sequence[Condition], batch: Sequence[Any], size: int) -> str:
    """Say which condition a batch does not meet; empty if it meets all."""
    for condition in conditions:
        found, wanted = computed(condition.program, batch, size), condition.per_sample * size
        if not abs(found - wanted) <= _FITS * abs(wanted):
            return f"{condition.why}, which is {found:g} for {size} samples here and {wanted:g} elsewhere"
    return ""


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key] if isinstance(value, (dict, list, tuple)) else getattr(value, key)
    return value


def _operator(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
