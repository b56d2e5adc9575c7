"""Where samples that have come to a node are kept: for one data set and one node, over runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from nfold.errors import ClusterError
from nfold.machine.user_folders import cache_folder
from nfold.runtime.samples.kept_files import StoreInUse
from nfold.runtime.samples.store import SampleStore

_MOST_RUNS = 16
"""That train on the same data on one node at the same time, each with a store of its own."""


def open_store(
    key: str, node: str, most_bytes: int | None = None, environment: Mapping[str, str] = os.environ
) -> SampleStore:
    """Open the store of a data set on a node, or make it. nfold removes it never; whoever needs the room may.

    Args:
        key: of the data, see `data_key`.
        node: where it is; machines that share a folder have stores of their own.
        most_bytes: of all samples in it; None: as many as the disk has room for.
        environment: names the folders.

    Raises:
        ClusterError: there is no folder for it, or it cannot be written.
    """
    folder = _folder(environment) / key
    for number in range(_MOST_RUNS - 1):
        try:
            return SampleStore(folder / _named(node, number), most_bytes)
        except StoreInUse:
            continue
    return SampleStore(folder / _named(node, _MOST_RUNS - 1), most_bytes)


def _folder(environment: Mapping[str, str]) -> Path:
    named, cache = environment.get("NFOLD_DATA", ""), cache_folder(environment)
    if named:
        return Path(named).expanduser().absolute() / ".nfold-samples"
    if cache is None:
        raise ClusterError("samples that move have no place: there is no home folder. Let NFOLD_DATA name one.")
    return cache / "samples"


def _named(node: str, number: int) -> str:
    name = quote(node, safe="")
    return f"{name}+{number + 1}" if number else name
