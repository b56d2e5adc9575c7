"""The table of rules: for each operator a function from a call to the kind of its results."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from nfold.capture.proof.rules.calls import Call
from nfold.capture.proof.rules.kinds import Kind

Rule = Callable[[Call], Kind | Sequence[Kind]]
"""Gives one kind for all results, or one for each."""

RULES: dict[str, Rule] = {}


_AnyRule = TypeVar("_AnyRule", bound=Rule)


def rule(*names: str) -> Callable[[_AnyRule], _AnyRule]:
    """Register a rule for operators, by name without overload."""

    def add(function: _AnyRule) -> _AnyRule:
        for name in names:
            if name in RULES:
                raise ValueError(f"there are two rules for {name}")
            RULES[name] = function
        return function

    return add
