"""Where nfold keeps what outlives a run."""

import pytest

from nfold.machine.user_folders import cache_folder, state_folder


@pytest.mark.parametrize(
    ("folder", "variable", "below_home"),
    [(cache_folder, "XDG_CACHE_HOME", ".cache"), (state_folder, "XDG_STATE_HOME", ".local/state")],
)
def test_the_folder_is_the_users(monkeypatch, tmp_path, folder, variable, below_home):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder({variable: "/mine"}).as_posix() == "/mine/nfold"
    for named in ({}, {variable: ""}, {variable: "relative"}):
        assert folder(named) == tmp_path / below_home / "nfold"
