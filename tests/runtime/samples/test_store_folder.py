"""Each data set has a store on each node, and runs side by side have one each."""

import pytest

from nfold.errors import ClusterError
from nfold.runtime.samples.store_folder import open_store


def test_it_lies_beside_the_data_or_in_the_cache(tmp_path):
    for environment, folder in (
        ({"NFOLD_DATA": str(tmp_path / "data")}, tmp_path / "data" / ".nfold-samples"),
        ({"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "cache" / "nfold" / "samples"),
    ):
        open_store("key", "pi/1", environment=environment).close()
        assert (folder / "key" / "pi%2F1" / "journal").exists()


def test_two_runs_side_by_side_have_a_store_each_and_the_next_one_has_the_first(tmp_path):
    environment = {"NFOLD_DATA": str(tmp_path)}
    stores = [open_store("key", "pi1", environment=environment) for _ in range(2)]
    names = [path.name for path in (tmp_path / ".nfold-samples" / "key").iterdir()]
    assert sorted(names) == ["pi1", "pi1+2"]
    for store in stores:
        store.close()
    open_store("key", "pi1", environment=environment).close()
    assert len(list((tmp_path / ".nfold-samples" / "key").iterdir())) == 2


def test_without_a_home_there_is_no_place(monkeypatch):
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(ClusterError, match="Let NFOLD_DATA name one"):
        open_store("key", "pi1", environment={})
