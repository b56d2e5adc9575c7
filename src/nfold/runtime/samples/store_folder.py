"""Where samples that have come to a node are kept: for one data set and one node, over runs."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from nfold.errors import ClusterError
from nfold.machine.user_folders import cache_folder
from nfold.runtime.samples.kept_files import StoreInUse
from nfold.runtime.samples.old_stores import OldStores
from nfold.runtime.samples.sample_store import SampleStore

_MOST_RUNS = 16
"""That train on the same data on one node at the same time, each with a store of its own."""


def open_store(
    key: str, node: str, most_bytes: int | None = None, environment: Mapping[str, str] = os.environ
) -> SampleStore:
    """Open the store of a data set on a node, or make it.

    What the node keeps of other data sets and runs counts towards the room, and is removed first when there is none.

    Args:
        key: of the data, see `data_key`.
        node: where it is; machines that share a folder have stores of their own.
        most_bytes: of all samples on the node; None: as many as the disk has room for.
        environment: names the folders.

    Raises:
        ClusterError: there is no folder for it, or it cannot be written.
    """
    root = _folder(environment)
    for number in range(_MOST_RUNS - 1):
        try:
            return _opened(root, key, _named(node, number), node, most_bytes)
        except StoreInUse:
            continue
    return _opened(root, key, _named(node, _MOST_RUNS - 1), node, most_bytes)


def temporary_store(most_bytes: int | None = None) -> SampleStore:
    """Make a store that is removed when it is closed.

    Raises:
        ClusterError: it cannot be written.
    """
    return SampleStore(Path(tempfile.mkdtemp(prefix="nfold-samples-")), most_bytes, is_kept=False)


def _opened(root: Path, key: str, name: str, node: str, most_bytes: int | None) -> SampleStore:
    names = [_named(node, number) for number in range(_MOST_RUNS)]
    folders = [each for each in root.glob("*/*") if each.name in names and each != root / key / name]
    return SampleStore(root / key / name, most_bytes, old=OldStores(folders))


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
