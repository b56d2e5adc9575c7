"""Replaces an attribute of a class or module for a while, to see how it is used."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute for a block; one that the object did not have itself is removed afterwards."""
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
