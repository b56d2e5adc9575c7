"""Looks at what lives on a node: how much, how large, and whether it can be sent."""

import hashlib
from collections.abc import Collection
from statistics import fmean, pstdev
from typing import Any

from nfold.errors import ProgramError
from nfold.node_data import LocalData, LocalFiles
from nfold.planning.residency.node_inventory import Inventory, keys_of
from nfold.runtime.samples.file_names import lies_below
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
    digest, sizes, looked_at = hashlib.blake2b(f"{count} {source.part}".encode()), list[int](), _places(count)
    try:
        for record in records_of(dataset, looked_at):
            digest.update(record.data)
            sizes.append(len(record.data))
    except ProgramError as error:
        return Inventory(
            num_samples=count, sample_bytes=0.0, num_pinned=count, why_pinned=str(error), digest=digest.hexdigest()
        )
    mean, deviation = _spread(sizes)
    pinned = source.num_pinned(count)
    return Inventory(
        num_samples=count,
        sample_bytes=mean,
        deviation_bytes=deviation,
        num_pinned=pinned,
        digest=digest.hexdigest(),
    )


def _inventory_of_files(source: LocalData, files: LocalFiles) -> Inventory:
    told = {name: f"{files.size(index)} {files.ends_crc(index)}" for index, name in enumerate(files.names)}
    digest = hashlib.blake2b()
    for index, (name, each) in enumerate(told.items()):
        digest.update(f"{name}\0{each}\0{files.changed_ns(index)}\n".encode("utf-8", "surrogateescape"))
    count = len(files)
    mean, deviation = _spread([files.size(index) for index in range(count)])
    odd = next((name for name in files.names if not lies_below(name)), None)
    return Inventory(
        num_samples=count,
        sample_bytes=mean if odd is None else 0.0,
        deviation_bytes=deviation,
        num_pinned=source.num_pinned(count) if odd is None else count,
        why_pinned="" if odd is None else f"no node would take a file of the name {odd!r}. Rename it.",
        digest=digest.hexdigest(),
        keys=keys_of(told),
    )


def _spread(sizes: Collection[int]) -> tuple[float, float]:
    """Return mean and standard deviation of sizes; 0 and 0 of none."""
    return (fmean(sizes), pstdev(sizes)) if sizes else (0.0, 0.0)


def _places(count: int) -> list[int]:
    """Return a few indices from the first to the last."""
    few = min(_LOOKED_AT, count)
    return sorted({index * (count - 1) // max(1, few - 1) for index in range(few)})
