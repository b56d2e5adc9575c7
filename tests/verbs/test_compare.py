"""What a comparison runs: every place of its sweep once, on links of the speed that was asked for."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from nfold.cli.compare_command import links
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.findings.comparison import Architecture
from nfold.errors import ClusterError, PlanError
from nfold.runtime.measuring.probing_rounds import with_rate
from nfold.verbs.compare import Sweep, check_shares, compare, options_of

LOCAL = Channel(latency_s=1e-5, bandwidth_bytes_per_s=1e9, origin="measured")
LINK = Channel(latency_s=2e-3, bandwidth_bytes_per_s=12.5e6, origin="declared")
CLUSTER = Cluster(
    nodes=(
        Node(name="a", cores=1, memory_bytes=1 << 30, local=LOCAL, uplink=LINK, downlink=LINK),
        Node(name="b", cores=1, memory_bytes=1 << 30, local=LOCAL),
    )
)


def test_the_plain_run_comes_first_and_once():
    cells = list(Sweep(workers=(1, 2), strategies=("single", "ring"), links_bytes_per_s=(1e6, 2e6)).cells())

    assert [(cell.architecture.name, cell.workers, cell.link_bytes_per_s) for cell in cells] == [
        ("single", 1, None),
        ("ring", 2, 1e6),
        ("ring", 2, 2e6),
    ]


def test_servers_are_varied_where_a_strategy_has_them_and_never_outnumber_workers():
    cells = list(Sweep(workers=(2, 4), strategies=("ring", "ps"), servers=(0, 1, 3)).cells())

    assert [(cell.architecture, cell.workers) for cell in cells[1:]] == [
        (Architecture(strategy="ring"), 2),
        (Architecture(strategy="ring"), 4),
        (Architecture(strategy="ps"), 2),
        (Architecture(strategy="ps"), 4),
        (Architecture(strategy="ps", servers=1), 2),
        (Architecture(strategy="ps", servers=1), 4),
        (Architecture(strategy="ps", servers=3), 4),
    ]


def test_what_is_not_run_is_said():
    (why,) = Sweep(workers=(1, 2, 4), strategies=("ring", "ps"), servers=(0, 3)).left_out()
    assert why.startswith("ps with 3 servers is left out for 2 workers")


def test_every_run_has_a_folder_of_its_own():
    sweep = Sweep(workers=(2, 4), strategies=("ring", "ps"), servers=(0, 1), links_bytes_per_s=(6.25e6, 125e6))
    folders = [cell.folder for cell in sweep.cells()]

    assert len(set(folders)) == len(folders) == 1 + 2 * (2 + 4)
    assert "ps-4+1-50Mbit" in folders


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workers": (0, 1)}, "at least 1"),
        ({"servers": (-1,)}, "at least 0"),
        ({"strategies": ("ring", "sp")}, "unknown strategy 'sp'"),
        ({"strategies": ()}, "--strategies names none"),
        ({"strategies": "ring"}, r"strategies is 'ring': a comparison takes several, as in strategies=\['ring'\]"),
        ({"workers": 2}, r"workers is 2: a comparison takes several, as in workers=\[2\]"),
        ({"workers": (1, 2.0)}, r"-n 1,2\.0: every number of workers must be a whole one"),
        ({"servers": 1}, r"server_counts is 1: a comparison takes several, as in server_counts=\[1\]"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(wrong, said):
    with pytest.raises(PlanError, match=said):
        Sweep(**wrong)


def test_links_need_an_emulated_cluster(tmp_path):
    with pytest.raises(PlanError, match=r"--emulate cluster\.toml"):
        compare("no such file.py", links_bytes_per_s=(1e6,), out=tmp_path)


def test_every_link_gets_the_speed_and_keeps_its_latency():
    a, b = with_rate(CLUSTER, 5e6).nodes

    for channel in (a.uplink, a.downlink, b.uplink, b.downlink):
        assert (channel.bandwidth_bytes_per_s, channel.origin) == (5e6, "declared")
    assert (a.uplink.latency_s, b.uplink.latency_s) == (2e-3, 0.0)
    assert a.local == LOCAL


def test_rates_share_the_last_ones_unit():
    assert links("50,200, 1000 Mbit/s") == [6.25e6, 25e6, 125e6]
    assert links("50Mbit,1 Gbit/s") == [6.25e6, 125e6]


@pytest.mark.parametrize("wrong", ["50,200", "", "fast", "50,-1 Mbit/s", "0 Mbit/s"])
def test_rates_without_sense_are_refused(wrong):
    with pytest.raises(ClusterError):
        links(wrong)


def given(sweep, cluster=None, **wishes):
    """Return the options of every run of a sweep, by its folder."""
    check_shares(wishes, sweep, cluster)
    return {cell.folder: options_of(cell, wishes, sweep, cluster, Path("all")) for cell in sweep.cells()}


def test_what_is_said_of_staleness_goes_to_the_strategies_that_understand_it():
    sweep = Sweep(workers=(2,), strategies=("ring", "ssp", "ps-async"))
    runs = given(sweep, staleness=2, staleness_aware=True, steps=7)

    assert {name: (run.staleness, run.staleness_aware) for name, run in runs.items()} == {
        "single-1": (None, False),
        "ring-2": (None, False),
        "ssp-2": (2, True),
        "ps-async-2": (None, True),
    }
    assert {run.steps for run in runs.values()} == {7}


def test_a_fault_goes_to_the_runs_with_a_rank_on_its_node():
    sweep = Sweep(workers=(1, 2), strategies=("ring",))
    runs = given(sweep, CLUSTER, emulate=CLUSTER, fault=["slow b 0.5@1s", "slow a 0.5@2s"])

    assert {name: list(run.fault) for name, run in runs.items()} == {
        "single-1": ["slow a 0.5@2s"],
        "ring-2": ["slow b 0.5@1s", "slow a 0.5@2s"],
    }


@pytest.mark.parametrize(
    ("strategies", "wishes", "said"),
    [
        (("ring", "ps-async"), {"staleness": 2}, "--staleness 2 is the bound of ssp, .* --strategies ring,ps-async"),
        (("ring", "ps"), {"staleness_aware": True}, "--staleness-aware is for ps-async and ssp"),
        (("single",), {"fault": ["kill b@1s"]}, "--fault 'kill b@1s': no run has a rank on b"),
        (("ssp",), {"staleness": -1}, "--staleness -1: it must be at least 0"),
    ],
    ids=str,
)
def test_a_wish_that_no_run_could_be_given_is_refused(strategies, wishes, said):
    with pytest.raises(PlanError, match=said):
        given(Sweep(workers=(2,), strategies=strategies), CLUSTER, **wishes)


def test_who_stops_a_sweep_is_told_how_to_compare_what_had_ended(tmp_path, monkeypatch):
    def play(job):
        job.folder.release()
        if job.folder.path.name == "ring-4":
            raise KeyboardInterrupt("Nothing is kept.")

    monkeypatch.setattr("nfold.verbs.compare.play_to_end", play)
    monkeypatch.setattr("nfold.verbs.compare.check_room", lambda *_: None)
    monkeypatch.setattr("nfold.verbs.compare.forking_all", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr("nfold.verbs.run_folder.folder.RunFolder.report", lambda _: SimpleNamespace(samples_per_s=1.0))
    script = tmp_path / "my.py"
    script.write_text("def program(): pass")
    folders = [str(tmp_path / "out" / name) for name in ("single-1", "ring-2")]

    with pytest.raises(KeyboardInterrupt) as stop:
        compare(str(script), workers=(2, 4), strategies=("ring",), out=tmp_path / "out")
    assert str(stop.value) == f"Nothing is kept.\nCompare those that had ended: nfold compare {' '.join(folders)}"
