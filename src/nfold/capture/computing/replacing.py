"""Puts another function into a class or module for a while, to see what is done with it."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object another attribute meanwhile; one that it does not have itself is gone again afterwards."""
    held = vars(owner)
    is_own, own = name in held, held.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, own)
        else:
            delattr(owner, name)
