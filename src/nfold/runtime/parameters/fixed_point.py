"""Gradients as whole numbers of a common unit: their sum is the same in whatever order and groups they are added.

A unit is 2^-b. An addend is rounded to the nearest whole number of units, so it is off by half a unit at most, and
their sum by half a unit for each chunk. Sums cannot overflow: each of n addends is refused beyond 2^62 / n units.
"""

import torch

from nfold.planning.reductions.norm_messages import DIGITS

MOST = 2.0**62
"""Units that all addends of an element may come to; one bit more has room in 64, beside the sign."""
_BLOCK = 1 << 14
"""Elements at a time, so that what is made in between stays in the cache."""


class TooLarge(ArithmeticError):
    """An addend has no room, or is no number.

    Attributes:
        value: of largest size among those that were added with it.
        limit: the largest size that has room.
    """

    def __init__(self, value: float, limit: float) -> None:
        super().__init__(f"{value:g} does not lie between -{limit:g} and {limit:g}")
        self.value, self.limit = value, limit


class Adder:
    """Adds tensors to sums of whole numbers, from one thread."""

    def __init__(self, fraction_bits: int, num_addends: int) -> None:
        """Args:
        fraction_bits: a unit is 2 to the power of minus so many.
        num_addends: most that an element has.
        """
        self._scale, self._limit = 2.0**fraction_bits, MOST / num_addends
        self._scaled: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def add(self, sums: torch.Tensor, values: torch.Tensor) -> None:
        """Add values to as many sums, both flat. Three passes over values that lie in the cache.

        Raises:
            TooLarge: a value is too large, infinite or NaN.
        """
        for start in range(0, values.numel(), _BLOCK):
            part, total = values[start : start + _BLOCK], sums[start : start + _BLOCK]
            scaled, whole = (each[: part.numel()] for each in self._scratch(values.device))
            scaled.copy_(part).mul_(self._scale).round_()
            least, most = (float(each) for each in torch.aminmax(scaled))
            if not max(-least, most) <= self._limit:  # so that NaN is no number either
                size = most if most != most or most >= -least else least
                raise TooLarge(size / self._scale, self._limit / self._scale)
            total.add_(whole.copy_(scaled))

    def _scratch(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if device not in self._scaled:
            self._scaled[device] = (
                torch.empty(_BLOCK, dtype=torch.float64, device=device),
                torch.empty(_BLOCK, dtype=torch.int64, device=device),
            )
        return self._scaled[device]


def write(sums: torch.Tensor, fraction_bits: int, into: torch.Tensor) -> None:
    """Write sums as numbers of the type of `into`, rounded to the nearest double first; both flat, from any thread."""
    unit = 2.0**-fraction_bits
    for start in range(0, sums.numel(), _BLOCK):
        part = sums[start : start + _BLOCK]
        into[start : start + _BLOCK].copy_(part.to(torch.float64).mul_(unit))


DIGIT_BITS = 48
"""Of a digit of a sum of squares, which a double holds: four have room for 2^64 squares of 2^62."""
_LIMB_BITS, _NUM_LIMBS = 16, 4


def squares(sums: torch.Tensor) -> int:
    """Return the exact sum of the squares of whole numbers below 2^62 in size."""
    total = 0
    for start in range(0, sums.numel(), _BLOCK):
        total += _squares_of_block(sums[start : start + _BLOCK].abs())
    return total


def _squares_of_block(sizes: torch.Tensor) -> int:
    """Products of 16 bits each, 2^14 of them: below 2^53, so doubles add them exactly in any order."""
    mask = (1 << _LIMB_BITS) - 1
    limbs = torch.stack([(sizes >> (_LIMB_BITS * place)) & mask for place in range(_NUM_LIMBS)]).to(torch.float64)
    products = (limbs @ limbs.T).tolist()
    places = range(_NUM_LIMBS)
    return sum(int(products[one][two]) << (_LIMB_BITS * (one + two)) for one in places for two in places)


def digits_of(total: int) -> list[float]:
    """Return a whole number as digits, the least first."""
    return [float((total >> (DIGIT_BITS * place)) & ((1 << DIGIT_BITS) - 1)) for place in range(DIGITS)]


def from_digits(digits: list[float]) -> int:
    """Return the whole number of digits, of which some may be sums of several."""
    return sum(int(digit) << (DIGIT_BITS * place) for place, digit in enumerate(digits))
