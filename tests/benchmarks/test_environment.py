"""Results of benchmarks, as they are written and read."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from environment import keep_runs_apart, known, write

from nfold.machine.user_folders import cache_folder, state_folder


def test_what_was_written_beside_a_script_is_known_there(tmp_path):
    script = str(tmp_path / "run.py")
    assert known(script) == {}
    write({"rows": [1, 2]}, script)
    assert known(script)["rows"] == [1, 2]
    assert known(script)["environment"]["cores"] > 0


def test_runs_of_a_benchmark_are_not_among_the_users(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/theirs")
    monkeypatch.setenv("XDG_STATE_HOME", "/theirs")
    keep_runs_apart()
    cache, state = cache_folder(os.environ), state_folder(os.environ)
    assert cache.is_file(), "nothing can be kept there"
    assert state.parent.parent == cache.parent
