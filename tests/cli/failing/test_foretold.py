"""What is known before the first step is said before it, by `plan` as by `train`."""

import shutil
from types import SimpleNamespace

import pytest

import nfold as library


@pytest.mark.parametrize("verb", ["plan", "train"])
def test_a_disk_without_room_is_refused_before_the_first_step(nfold, tmp_path, monkeypatch, verb):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3000))
    (tmp_path / "__pycache__").mkdir(exist_ok=True)  # Python's own, where it may write there
    before = sorted(tmp_path.iterdir())
    refused = nfold(verb, "steady.py", "--debug", "--out", "mine", "--chunks", "4")
    assert refused.code == 2
    assert refused.message.startswith("nfold: the files of the run need 6.94 KiB on the disk of mine")
    assert "2.93 KiB are free there" in refused.message
    assert sorted(tmp_path.iterdir()) == before


def test_a_plan_says_what_a_time_limit_and_a_period_of_checkpoints_come_to(nfold, tmp_path):
    flags = ("--steps", "100000", "--stop-after", "30s", "--checkpoint-every", "200000", "--out", "mine")
    told = nfold("plan", "steady.py", "--debug", *flags)
    assert told.code == 0, told.err
    assert "of the 100000 steps fit into 30 s" in told.out
    assert "--checkpoint-every 200000 is more than the 100000 steps of the run" in told.out
    assert not (tmp_path / "mine").exists()
    machines = tmp_path / "machines.toml"
    machines.write_text('[[node]]\nname = "n"\ncount = 2\nmemory = "4 GiB"\nuplink = "1 Mbit/s"\n')
    slow = library.plan("steady.py", cluster=machines, strategy="ring", steps=1000, stop_after=1e-3, debug=True)
    assert any("not one step fits into 0.001 s" in note for note in slow.notes)
