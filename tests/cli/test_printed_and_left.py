"""One real run, disturbed by strangers, started from another folder: what it prints and what it leaves."""

import contextlib
import importlib.util
import json
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nfold.planning.choosing.strategies import STRATEGY_NAMES
from nfold.runtime.control.channel import ChannelClosed, connect
from nfold.transport.connecting.token_proof import CHALLENGE_BYTES

NUMBER = (int, float)
REPORT = {
    "strategy": str,
    "world_size": int,
    "step_s": {"p50": NUMBER, "p95": NUMBER},
    "samples_per_s": NUMBER,
    "efficiency": NUMBER,
    "sent_bytes_per_step": NUMBER,
    "time": dict.fromkeys(
        ("compute_s", "exposed_communication_s", "peer_wait_s", "input_s", "update_s"),
        NUMBER,
    ),
    "peak_rss_bytes": (int, list),
    "verdict": {"class": str, "place": str, "value": NUMBER, "unit": str, "text": str},
    "predicted": {"step_s": NUMBER, "sent_bytes_per_step": NUMBER},
}
PLAN = {
    "strategy": str,
    "chunks": int,
    "loads_s": list,
    "predicted": {"step_s": NUMBER, "sent_bytes_per_step": NUMBER},
    "rejected": list,
}
FILES = ("plan", "profile", "cluster", "trace", "report")


@dataclass
class Done:
    """A run that has ended."""

    script: Path
    folder: Path
    document: dict
    err: str
    answers: list[bytes]
    """What strangers heard."""
    took_s: float
    """The whole command."""


@pytest.fixture(scope="module")
def done(module_shell, tmp_path_factory, pinned):
    shell, elsewhere = module_shell, tmp_path_factory.mktemp("elsewhere")
    script, port = shell.folder / "steady.py", _free_port()
    began_s = time.perf_counter()
    with pinned(2):
        job = shell.start(
            "train", f"{script}:program", "-n", 2, "--strategy", "ring", "--port", port, "--json", cwd=elsewhere
        )
    first = next(line for line in job.stderr if line.startswith("ring, 2 workers"))
    silent = socket.create_connection(("127.0.0.1", port))
    answers = [_call(port, b"GET / HTTP/1.1\r\nHost: nfold\r\nAccept: */*\r\n\r\n" * 3), _call(port, b"\0" * 4096)]
    with pytest.raises(ChannelClosed, match="rank 0 was not let in"):
        connect("127.0.0.1", port, "not the token", member=0)
    result = shell.finish(job)
    took_s = time.perf_counter() - began_s
    silent.close()
    assert result.code == 0, result.err
    return Done(script, elsewhere / "runs" / "steady-1", result.document(), first + result.err, answers, took_s)


@pytest.mark.processes
def test_strangers_are_sent_away(done):
    """And the job is unharmed: the next one, whom nobody disturbs, has the same result."""
    assert [len(answer) for answer in done.answers] == [CHALLENGE_BYTES] * 2, "what everybody hears, and no more"
    log = (done.folder / "log.txt").read_text()
    assert log.count("refused 127.0.0.1:") >= 3, "and the log tells of each"


@pytest.mark.processes
def test_the_report_has_the_keys_that_others_rely_on(done):
    _check(done.document, REPORT)
    assert json.loads((done.folder / "report.json").read_text()) == done.document
    assert done.document["world_size"] == 2
    assert done.document["sent_bytes_per_step"] == done.document["predicted"]["sent_bytes_per_step"] > 0


@pytest.mark.processes
def test_the_plan_has_the_keys_that_others_rely_on(done):
    plan = json.loads((done.folder / "plan.json").read_text())

    _check(plan, PLAN)
    assert (plan["strategy"], plan["chunks"], len(plan["loads_s"])) == ("ring", 4, 2)
    assert {loser["strategy"] for loser in plan["rejected"]} == {*STRATEGY_NAMES} - {"ring", "auto"}
    for loser in plan["rejected"]:
        assert isinstance(loser["why"], str)
        if loser["predicted"]["step_s"] is None:
            assert not any(loser["predicted"].values()), "nothing could be proposed"
        else:
            _check(loser["predicted"], PLAN["predicted"])


@pytest.mark.processes
def test_the_folder_holds_every_file(done):
    for name in FILES:
        assert json.loads((done.folder / f"{name}.json").read_text())["schema"].startswith("nfold.")
    assert "hello from the program" in (done.folder / "log.txt").read_text()
    assert "hello" not in done.err


@pytest.mark.processes
def test_the_history_has_a_line_a_step_and_a_line_an_evaluation(done):
    lines = [json.loads(line) for line in (done.folder / "history.jsonl").read_text().splitlines()]

    for line in lines:
        _check(line, {"step": int, "epoch": int, "loss": NUMBER, "metrics": dict})
    steps = [(line["step"], line["epoch"]) for line in lines if not line["metrics"]]
    assert steps == [(step, (step - 1) // 5 + 1) for step in range(1, 21)], "76 samples, 16 at a time: 5 steps an epoch"
    evaluations = [line for line in lines if line["metrics"]]
    assert [line["step"] for line in evaluations] == [5, 10, 15, 20]
    assert evaluations[-1]["metrics"].keys() == {"test_loss", "accuracy"}


@pytest.mark.processes
def test_the_model_loads_into_the_plain_module(done, monkeypatch):
    monkeypatch.syspath_prepend(str(done.script.parent))
    monkeypatch.delitem(sys.modules, "numbers_of_this_program", raising=False)
    model = _import(done.script).Net()

    model.load_state_dict(load_file(done.folder / "model.safetensors"), strict=True)

    assert model.again.weight is model.outward.weight
    assert int(model.norm.num_batches_tracked) == 20 * 4, "a batch is four chunks"


@pytest.mark.processes
def test_without_a_terminal_there_are_plain_lines(done):
    assert not [letter for letter in done.err if letter < " " and letter != "\n"]
    assert [line.split()[1] for line in done.err.splitlines() if line.startswith("epoch ")] == [
        "1/4",
        "2/4",
        "3/4",
        "4/4",
    ]


@pytest.mark.processes
def test_why_reads_the_run(done, nfold):
    assert nfold("why", done.folder, "--json").document() == done.document
    text = nfold("why", done.folder)
    assert done.document["verdict"]["text"] in " ".join(text.out.split())
    assert "Next: nfold " in text.out


def test_plan_prints_one_object_and_leaves_nothing(nfold, tmp_path):
    result = nfold("plan", "steady.py", "-n", "2", "--json", "--debug")

    _check(result.document(), PLAN)
    assert not (tmp_path / "runs").exists()
    assert "hello from the program" in result.err


def test_compare_prints_one_object(nfold, tmp_path):
    sweep = ("-n", "1,2", "--strategies", "ring,ssp", "--staleness", "2")
    result = nfold("compare", "steady.py", *sweep, "--steps", "2", "--json", "--debug")

    runs = result.document()["runs"]
    assert [run["name"] for run in runs] == ["single", "ring x2", "ssp x2"]
    for run in runs:
        _check(run["report"], REPORT)
        assert (tmp_path / run["folder"] / "report.json").is_file()


@pytest.mark.processes
def test_the_ledger_of_a_run_is_the_time_of_its_command(done):
    spent = done.document["ledger"]
    before = ["start-up", "profiling", "connecting", "probing links", "planning", "building"]
    assert list(spent)[: len(before)] == before
    assert {"summing up", "writing", "ending"} <= spent.keys()
    assert 0.95 * done.took_s - 0.5 < sum(spent.values()) < done.took_s, "but for printing, and for what ends a process"
    report, page = ((done.folder / name).read_text() for name in ("report.json", "report.html"))
    assert json.loads(report)["ledger"] == spent
    assert "writing" in page[page.index('<section id="ledger">') :].partition("</section>")[0]


def test_the_seed_decides_the_result(nfold, tmp_path, one_core):
    for name, seed in (("one", "7"), ("same", "7"), ("other", "8")):
        assert nfold("train", "steady.py", "--debug", "--steps", "3", "--seed", seed, "--out", name).code == 0

    one, same, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same", "other"))

    assert one == same
    assert one != other


def _call(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        heard = stranger.recv(CHALLENGE_BYTES, socket.MSG_WAITALL)
        stranger.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            while piece := stranger.recv(100):
                heard += piece
    return heard


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _check(document: dict, kinds: dict) -> None:
    """Assert that a document has the keys, with values of the right kinds."""
    for key, kind in kinds.items():
        assert key in document, f"{key} is missing"
        if isinstance(kind, dict):
            _check(document[key], kind)
        else:
            assert isinstance(document[key], kind), f"{key} is {document[key]!r}"
            assert not isinstance(document[key], bool)


def _import(script: Path):
    specification = importlib.util.spec_from_file_location("a_plain_script", script)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
