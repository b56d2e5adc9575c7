"""Looks at what lives on a node: how much, how large, and whether it can be sent."""

import hashlib
from typing import Any

from nfold.core.inventory import Inventory, keys_of
from nfold.errors import ProgramError
from nfold.node_data import LocalData, LocalFiles
from nfold.runtime.samples.resident_dataset import records_of

_LOOKED_AT = 8
"""Items, from which the bytes of all are taken."""


def inventory_of(source: LocalData, dataset: Any) -> Inventory:
    """Return what a node tells of its samples.

    Args:
        source: what the program calls its training data.
        dataset: that it has built here.
    """
    count = len(dataset)
    if isinstance(dataset, LocalFiles):
        return _inventory_of_files(source, dataset)
    digest, num_bytes, looked_at = hashlib.blake2b(str(count).encode()), 0, _places(count)
    try:
        for record in records_of(dataset, looked_at):
            digest.update(record.data)
            num_bytes += len(record.data)
    except ProgramError as error:
        return Inventory(
            num_samples=count, sample_bytes=0.0, num_pinned=count, why_pinned=str(error), digest=digest.hexdigest()
        )
    mean = num_bytes / len(looked_at) if looked_at else 0.0
    pinned = source.num_pinned(count)
    return Inventory(num_samples=count, sample_bytes=mean, num_pinned=pinned, digest=digest.hexdigest())


def _inventory_of_files(source: LocalData, files: LocalFiles) -> Inventory:
    sizes = {name: files.size(index) for index, name in enumerate(files.names)}
    digest = hashlib.blake2b()
    for index, (name, size) in enumerate(sizes.items()):
        digest.update(f"{name}\0{size}\0{files.changed_ns(index)}\n".encode("utf-8", "surrogateescape"))
    mean = sum(sizes.values()) / len(sizes) if sizes else 0.0
    pinned = source.num_pinned(len(sizes))
    return Inventory(
        num_samples=len(sizes), sample_bytes=mean, num_pinned=pinned, digest=digest.hexdigest(), keys=keys_of(sizes)
    )


def _places(count: int) -> list[int]:
    """Return a few indices from the first to the last."""
    few = min(_LOOKED_AT, count)
    return sorted({index * (count - 1) // max(1, few - 1) for index in range(few)})
