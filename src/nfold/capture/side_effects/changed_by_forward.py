"""Says why what forward changes keeps the whole model one operator, and which line of the user's changes it."""

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from nfold.capture.program.users_line import told_place
from nfold.program import is_library

_MOST_NAMED = 3


def told_held_by_model(model: nn.Module, changed: Sequence[tuple[str, str]], *, by_several: bool) -> str:
    """Say that the model cannot be cut, since it holds itself what forward changes; empty if it does not.

    Args:
        model: the user's.
        changed: (module path, attribute) that forward changes.
        by_several: modules hold some of it together, which cannot be told apart.
    """
    own = [name for path, name in changed if not path]
    if by_several:
        names = ", ".join(f"{path}.{name}".lstrip(".") for path, name in changed[:_MOST_NAMED])
        return f"the model is kept whole: forward changes {names}, which several modules hold. Let one module hold it"
    if not own:
        return ""
    line = next(filter(None, (line_that_changes(model, name) for name in own)), "")
    place = f" in {line}" if line else ""
    return (
        f"the model is kept whole: forward changes {', '.join(own[:_MOST_NAMED])} of the model itself{place}. A module "
        "of its own that holds and changes it would be kept whole alone"
    )


def line_that_changes(module: nn.Module, name: str) -> str:
    """Return the first line of the user's class that assigns to an attribute or calls a method in place on it.

    It is looked for in the text, as `self.NAME`, outside of __init__; empty if there is none.
    """
    attribute = rf"\bself\.{re.escape(name)}"
    writes = re.compile(rf"{attribute}(\[[^\]]*\])?\s*([-+*/@|&^%]|//|\*\*)?=(?!=)|{attribute}\b[\w.\[\]:]*\.\w+_\(")
    for path, number, text in _lines(module):
        if writes.search(text):
            return told_place(path, number)
    return ""


def _lines(module: nn.Module) -> Iterator[tuple[str, int, str]]:
    """Yield file, number and text of the lines of the methods that the user wrote for a module, forward first."""
    methods: list[Any] = [
        each
        for kind in type(module).__mro__
        for each in vars(kind).values()
        if inspect.isfunction(each) and each.__name__ != "__init__" and not is_library(each.__code__.co_filename)
    ]
    for method in sorted(methods, key=lambda each: each.__name__ != "forward"):
        try:
            lines, first = inspect.getsourcelines(method)
        except (OSError, TypeError):
            continue
        yield from ((method.__code__.co_filename, first + offset, text) for offset, text in enumerate(lines))
