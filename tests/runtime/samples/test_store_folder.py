"""Each data set has a store on each node, and runs side by side have one each."""

import errno
import os

import pytest

from nfold.errors import ClusterError
from nfold.runtime.samples import kept_files
from nfold.runtime.samples.record import Record
from nfold.runtime.samples.store_folder import open_store


def test_it_lies_beside_the_data_or_in_the_cache(tmp_path):
    for environment, folder in (
        ({"NFOLD_DATA": str(tmp_path / "data")}, tmp_path / "data" / ".nfold-samples"),
        ({"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "cache" / "nfold" / "samples"),
    ):
        store = open_store("key", "pi/1", environment=environment)
        store.add(1, Record(b"one"))
        store.close()
        assert (folder / "key" / "pi%2F1" / "journal").exists()


def test_two_runs_side_by_side_have_a_store_each_and_the_next_one_has_the_first(tmp_path):
    environment = {"NFOLD_DATA": str(tmp_path)}
    stores = [open_store("key", "pi1", environment=environment) for _ in range(2)]
    names = [path.name for path in (tmp_path / ".nfold-samples" / "key").iterdir()]
    assert sorted(names) == ["pi1", "pi1+2"]
    for store in stores:
        store.add(1, Record(b"one"))
        store.close()
    open_store("key", "pi1", environment=environment).close()
    assert len(list((tmp_path / ".nfold-samples" / "key").iterdir())) == 2


def kept_before(environment, key, node, size):
    store = open_store(key, node, environment=environment)
    store.add(1, Record(bytes(size)))
    return store


def test_what_is_kept_of_other_data_counts_and_gives_way_to_new_samples_oldest_first(tmp_path):
    environment, root = {"NFOLD_DATA": str(tmp_path)}, tmp_path / ".nfold-samples"
    for place, key in enumerate(("newer", "older", "oldest")):
        kept_before(environment, key, "pi", 10).close()
        os.utime(root / key / "pi" / "journal", ns=(0, 10**9 - place))
    kept_before(environment, "oldest", "desk", 10).close()
    used = kept_before(environment, "used", "pi", 10)
    store = open_store("key", "pi", most_bytes=35, environment=environment)
    store.add(1, Record(bytes(5)))
    assert len([*root.glob("*/pi")]) == 5
    store.add(2, Record(bytes(15)))
    assert {path.parent.name for path in root.glob("*/pi")} == {"newer", "used", "key"}
    with pytest.raises(ClusterError, match="may hold 35 B and holds 20 B"):
        store.add(3, Record(bytes(20)))
    assert {path.parent.name for path in root.glob("*/pi")} == {"used", "key"}
    assert (root / "oldest" / "desk" / "journal").exists()
    for each in (store, used):
        each.close()


def test_a_full_disk_takes_what_is_kept_of_other_data(tmp_path, monkeypatch):
    environment, write = {"NFOLD_DATA": str(tmp_path)}, os.pwrite
    kept_before(environment, "other", "pi", 10).close()
    store = open_store("key", "pi", environment=environment)

    def full(descriptor, data, offset):
        if (tmp_path / ".nfold-samples" / "other").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data, offset)

    monkeypatch.setattr(kept_files.os, "pwrite", full)
    store.add(1, Record(b"one"))
    assert store.bytes_of(1) == b"one"
    store.close()


def test_without_a_home_there_is_no_place(monkeypatch):
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(ClusterError, match="Let NFOLD_DATA name one"):
        open_store("key", "pi1", environment={})
