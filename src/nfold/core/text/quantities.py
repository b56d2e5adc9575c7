"""Reads amounts with their unit: `100 Mbit/s`, `1 GiB`, `2 ms`. A number without a unit is refused, never guessed."""

import re
from collections.abc import Mapping

from nfold.errors import ClusterError

_KILO = (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
_KIBI = (("Ki", 2.0**10), ("Mi", 2.0**20), ("Gi", 2.0**30), ("Ti", 2.0**40))
_BITS = {f"{prefix}bit": factor / 8 for prefix, factor in _KILO}
SIZES: dict[str, float] = {f"{prefix}B": factor for prefix, factor in (*_KILO, *_KIBI)}
RATES: dict[str, float] = {
    **{f"{unit}/s": factor for unit, factor in _BITS.items()},
    **_BITS,  # as `tc` and most people write it
    **{f"{unit}/s": factor for unit, factor in SIZES.items()},
}
TIMES: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
SLOWEST_BYTES_PER_S = 1e3 / 8
FASTEST_BYTES_PER_S = 1e13 / 8
_AMOUNT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(\S*)\s*")


def bytes_per_s(text: str) -> float:
    """Read a rate: `100 Mbit/s` -> 12.5e6 bytes per second.

    Raises:
        ClusterError: the unit is missing or unknown, or the rate is not positive or no link's.
    """
    units = "bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, MiB/s, GB/s"
    value = _positive(text, RATES, "rate", "100 Mbit/s", units)
    if value < SLOWEST_BYTES_PER_S:
        raise ClusterError(f"{text!r} is too slow: no message would get through in useful time below 1 kbit/s")
    if value > FASTEST_BYTES_PER_S:
        raise ClusterError(
            f"{text!r} is too fast: no link is faster than 10 Tbit/s. Leave a rate out to have no limit."
        )
    return value


def num_bytes(text: str) -> int:
    """Read a size: `1 GiB` -> 2**30 bytes.

    Raises:
        ClusterError: the unit is missing or unknown, or the size is less than a byte.
    """
    return int(_positive(text, SIZES, "size", "1 GiB", "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"))


def seconds(text: str) -> float:
    """Read a duration: `2 ms` -> 0.002 seconds. 0 needs a unit too.

    Raises:
        ClusterError: the unit is missing or unknown, or the time is negative.
    """
    value = _amount(text, TIMES, "time", "2 ms", "us, ms, s, min")
    if value < 0:
        raise ClusterError(f"{text!r} is negative: a time must be at least 0")
    return value


def _positive(text: str, units: Mapping[str, float], what: str, example: str, known: str) -> float:
    value = _amount(text, units, what, example, known)
    if value <= 0:
        raise ClusterError(f"{text!r} is not positive: a {what} must be greater than 0")
    if value < 1:
        raise ClusterError(f"{text!r} is too little: a {what} of less than a byte serves nobody")
    return value


def _amount(text: str, units: Mapping[str, float], what: str, example: str, known: str) -> float:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ClusterError(f"{text!r} is no {what}. Write for example {example!r}")
    number, unit = match.groups()
    if not unit:
        raise ClusterError(f"{text!r} has no unit. Write for example {example!r}; units: {known}")
    if unit not in units:
        raise ClusterError(f"{text!r} has the unknown unit {unit!r}. Write for example {example!r}; units: {known}")
    return float(number) * units[unit]
