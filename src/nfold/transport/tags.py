"""The 64 bits that name a message between two processes.

    | generation 20 | use 4 | number 40 |

A rank names use and number; its transport puts the generation on top, so that a message which comes late from an
earlier generation is never taken for one of this.
"""

from enum import IntEnum

from nfold.errors import InternalError

_NUMBER_BITS, _TAG_BITS = 40, 44
MOST_GENERATIONS = 1 << (64 - _TAG_BITS)
_USES = (1 << (_TAG_BITS - _NUMBER_BITS)) - 1


class Use(IntEnum):
    """What a message is for. Each use counts its messages by itself."""

    STEP = 0
    """A schedule's messages."""
    SERVICE = 1
    """Between the workers and shards of an asynchronous plan."""
    GATHER = 2
    """Short parts that rank 0 collects."""
    PIECE = 3
    """Pieces of the state that rank 0 asks for."""
    PROBE = 4
    """Measuring the way to a peer."""
    SAMPLES = 5
    """Training samples that move."""
    STATE = 6
    """State that ranks hand to each other when members come and go, and keep for each other."""


def tag_of(use: Use, number: int) -> int:
    """Return the tag of a message, without its generation.

    Raises:
        InternalError: the number has more than 40 bits.
    """
    if not 0 <= number < 1 << _NUMBER_BITS:
        raise InternalError(f"message {number} of use {use.name} has no tag: numbers have {_NUMBER_BITS} bits")
    return use << _NUMBER_BITS | number


def in_generation(generation: int, tag: int) -> int:
    """Return the 64 bits that travel.

    Raises:
        InternalError: the tag has more than 44 bits.
    """
    if not 0 <= tag < 1 << _TAG_BITS:
        raise InternalError(f"tag {tag} cannot be sent: tags have {_TAG_BITS} bits")
    return generation << _TAG_BITS | tag


def generation_of(wire_tag: int) -> int:
    """Return the generation of a tag that travelled."""
    return wire_tag >> _TAG_BITS


def travels_beside(wire_tag: int) -> bool:
    """Whether a tag that travelled is of samples or state that move beside steps, whose bytes do not count them."""
    return (wire_tag >> _NUMBER_BITS) & _USES in (Use.SAMPLES, Use.STATE)


def without_generation(wire_tag: int) -> int:
    """Return the tag that a rank named."""
    return wire_tag & ((1 << _TAG_BITS) - 1)
