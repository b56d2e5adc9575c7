"""Ranks in an emulated cluster: what the coordinator is told of what is done to them. The box itself is a stand-in."""

import contextlib
import queue
from types import SimpleNamespace

import pytest

from nfold.errors import ClusterError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.emulated_ranks import EmulatedRanks, emulated_ranks

WAIT_S = 10.0


def test_the_coordinator_is_told_whom_a_fault_kills_before_it_does(tmp_path, monkeypatch):
    (tmp_path / "c.toml").write_text('[[node]]\nname = "n"\ncount = 3\nuplink = "1 Gbit/s"\n')
    events = queue.SimpleQueue()
    box = SimpleNamespace(
        notes=(), kill=lambda node: events.put(f"killed {node}"), slow=lambda node, factor: events.put(f"slowed {node}")
    )
    monkeypatch.setattr("nfold.verbs.ranks.emulated_ranks.emulated", lambda cluster: contextlib.nullcontext(box))
    faults = ["slow n-0 0.5@0s", "kill n-1@1ms"]
    options = Options(workers=3, emulate=tmp_path / "c.toml", fault=faults)
    with emulated_ranks(options, lambda text: None, events) as ranks:
        assert ranks is not None
        ranks.take(cmd.TrainingBegins())
        assert [events.get(timeout=WAIT_S) for _ in range(3)] == [
            "slowed n-0",
            ev.KillAnnounced((1,), "kill n-1@1ms"),
            "killed n-1",
        ]


def test_who_has_no_node_cannot_join():
    ranks = EmulatedRanks(SimpleNamespace(), ("n-0", "n-1"), SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="member 2 has no node: the job began with 2 on the emulated cluster"):
        ranks.place(2, ["run"])
