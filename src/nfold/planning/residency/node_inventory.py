"""What nodes tell of the samples that live on them, before anything moves."""

import base64
import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from nfold.core.text.units import count
from nfold.errors import ClusterError

_KEY_BYTES = 8
_KEY_LENGTH = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """The samples of one node."""

    num_samples: int
    sample_bytes: float
    """Of one, as it is sent, on average; 0 where there is none, or none can be sent."""
    deviation_bytes: float = 0.0
    """By how much the bytes of one deviate from that: the standard deviation of those that were looked at."""
    num_pinned: int
    why_pinned: str = ""
    """Why none can be sent, if that is so and the user has not said it."""
    digest: str
    """Of what the samples are."""
    keys: str = ""
    """Of named files, in their order: 8 bytes of each path, size and its ends, as base64; empty: they have no names."""

    @property
    def claims(self) -> "array[int]":
        """Return what no other node may have as well, in the order of the samples."""
        found = array("Q")
        found.frombytes(base64.b64decode(self.keys))
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleCosts:
    """Processor seconds that one sample which moves costs, on a core of a node."""

    send_s: float
    """To read it and to make it bytes."""
    keep_s: float
    """To check and write it where it comes to."""
    read_s: float
    """To read it there in each epoch, beyond what reading it takes where it came from."""


def keys_of(files: Mapping[str, object]) -> str:
    """Return the keys of files.

    Args:
        files: what tells each from others of its path, by its path: size and contents.
    """
    keys = b"".join(_hashed(f"{name}\0{told}".encode("utf-8", "surrogateescape")) for name, told in files.items())
    return base64.b64encode(keys).decode()


def data_key(inventories: Mapping[str, Inventory], run: str = "") -> str:
    """Return what names the data of all nodes, and by that the numbers of samples: no other data have it.

    Args:
        inventories: by node, in the order of their samples.
        run: names the run. Only files tell whether they are what they were in an earlier one, so items are kept for
            one run.
    """
    has_items = any(each.num_samples and not each.keys for each in inventories.values())
    told = f"{run}\n" if has_items else ""
    told += "".join(f"{each.num_samples} {each.digest}\n" for each in inventories.values())
    return hashlib.blake2b(told.encode()).hexdigest()[:_KEY_LENGTH]


def refuse_claimed_twice(inventories: Mapping[str, Inventory]) -> None:
    """Refuse a sample that lives on two nodes. About 0.3 us for each.

    Args:
        inventories: by node.

    Raises:
        ClusterError: two files of one path, size and ends are on two nodes, or on one; or two nodes give as many items,
            of which a few that were looked at are the same.
    """
    _refuse_same_items(inventories)
    claims = {node: each.claims for node, each in inventories.items()}
    if len(set().union(*claims.values())) == sum(map(len, claims.values())):
        return
    seen: dict[int, tuple[str, int]] = {}
    for node, keys in claims.items():
        for place, key in enumerate(keys, 1):
            if key in seen:
                other, there = seen[key]
                raise ClusterError(
                    f"{other} and {node} both hold one sample: file {there} of {len(claims[other])} on {other} and "
                    f"file {place} of {len(keys)} on {node}, in the order of their paths, have the same path, size, "
                    "first and last bytes. An epoch would visit it twice. Take it from one of them."
                )
            seen[key] = node, place


def _refuse_same_items(inventories: Mapping[str, Inventory]) -> None:
    seen: dict[str, str] = {}
    for node, each in inventories.items():
        if not each.num_samples or each.keys or each.why_pinned:  # of what cannot be read, only the number is known
            continue
        if each.digest in seen:
            raise ClusterError(
                f"{seen[each.digest]} and {node} both hold the same {count(each.num_samples, 'sample')}, as far "
                "as a few of them tell. An epoch would visit each twice. Let the function of local_data return, for "
                "each node's name, what lives there alone."
            )
        seen[each.digest] = node


def _hashed(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES).digest()
