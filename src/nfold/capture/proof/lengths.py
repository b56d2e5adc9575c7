"""Makes a number that was written down for batches of one length a number of batches of any length.

A batch whose samples are padded has a length of its own, which views and ranges name. So a program is followed at two
lengths, and every whole number that is another one there must be the length of some tensor of the data, times something
and plus something. Where it is none, the number cannot be computed elsewhere.
"""

import json
from collections.abc import Mapping
from typing import Any

Path = tuple[Any, ...]


class NoLength(Exception):
    """Two programs differ in more than the lengths of the data."""


def of_any_length(one: str, other: str, lengths: Mapping[tuple[Path, int], tuple[int, int]]) -> str:
    """Return a program that computes what two programs do, each for its own length.

    Args:
        one: JSON, see `conditions`.
        other: the same, of a batch of other lengths.
        lengths: (path of a tensor, its dimension) -> its length in the first batch and in the second.

    Raises:
        NoLength: see there.
    """
    unlike = {place: found for place, found in lengths.items() if found[0] != found[1]}
    return json.dumps(_joined(json.loads(one), json.loads(other), unlike))


def _joined(one: Any, other: Any, lengths: Mapping[tuple[Path, int], tuple[int, int]]) -> Any:
    if one == other:
        return one
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_joined(*each, lengths) for each in zip(one, other, strict=True)]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys() and "constant" not in one:
        return {key: _joined(one[key], other[key], lengths) for key in one}
    if type(one) is not int or type(other) is not int:
        raise NoLength
    for (path, dim), (here, there) in lengths.items():
        times, rest = divmod(one - other, here - there)
        if rest == 0:
            return {"length": list(path), "dim": dim, "times": times, "plus": one - times * here}
    raise NoLength
