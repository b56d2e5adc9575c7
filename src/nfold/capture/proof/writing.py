"""Writes down how a number is made of data alone, as `conditions` computes it again."""

import json
from typing import Any

import torch

from nfold.capture.batches.tree import dtype_name
from nfold.capture.proof.rules.counting import SampleCount
from nfold.capture.proof.tape import Step, Tape

_ANYWHERE = (torch.device, torch.layout, torch.memory_format)


class CannotWrite(Exception):
    """A number depends on something that cannot be written as JSON."""


def written_program(number: torch.Tensor, tape: Tape, samples: SampleCount) -> str:
    """Return the operators that make a number, as JSON.

    Raises:
        CannotWrite: an argument is of a kind that JSON cannot hold.
    """
    steps: list[dict[str, Any]] = []
    known: dict[int, int] = {}

    def reference(tensor: torch.Tensor) -> Any:
        origin = tape.origin(tensor)
        if origin is None:
            if not tape.is_constant(tensor):
                raise CannotWrite("a tensor that may change")
            return {"constant": tensor.tolist(), "dtype": dtype_name(tensor.dtype)}
        if isinstance(origin[0], Step):
            step, index = origin
            if id(step) not in known:
                entry = {"op": str(step.function), "args": encode(step.args), "kwargs": encode(step.kwargs)}
                known[id(step)] = len(steps)
                steps.append(entry)
            return {"step": known[id(step)], "out": index}
        return {"data": list(origin)}

    def encode(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return reference(value)
        if isinstance(value, (list, tuple)):
            return [encode(each) for each in value]
        if isinstance(value, dict):
            return {name: encode(each) for name, each in value.items() if not isinstance(each, _ANYWHERE)}
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, torch.SymInt) and (parts := samples.parts(value)):
            return {"size": list(parts)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise CannotWrite(type(value).__name__)

    result = reference(number)
    return json.dumps({"steps": steps, "result": result})
