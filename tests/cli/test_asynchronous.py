"""`ps-async` and `ssp` from the command line: they learn, go on, fail and stop like any other strategy."""

import json
import re
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import nfold as library
from nfold.runtime.data.chunk_loader import sample_order

STEP_OF_399 = 1 + list(sample_order(400, epoch=0, seed=0)).index(399) // 16
"""Of the last of 400 items, 16 at a time."""
DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.mark.processes
def test_the_digits_are_learnt(shell):
    result = shell.run("train", DIGITS, "-n", "2", "--strategy", "ps-async", "--out", "run", "--json")

    assert result.code == 0, result.err
    report, history = result.document(), (shell.folder / "run" / "history.jsonl").read_text().splitlines()
    assert report["metrics"]["accuracy"] >= 0.97
    steps = [json.loads(line)["step"] for line in history if not json.loads(line)["metrics"]]
    assert steps == list(range(1, len(steps) + 1)), "each step once"
    slices = {age: count for age, count in report["staleness"].items() if count}
    assert sum(slices.values()) == 2 * len(steps)
    assert report["sent_bytes_per_step"] == pytest.approx(report["predicted"]["sent_bytes_per_step"], rel=0.01)


def test_without_staleness_a_run_equals_a_ring(nfold, tmp_path):
    for out, strategy in (("ring", ["ring"]), ("ssp", ["ssp", "--staleness", "0"])):
        arguments = ("train", "steady.py", "-n", "2", "--steps", "7", "--debug", "--out", out, "--strategy", *strategy)
        result = nfold(*arguments)
        assert result.code == 0, result.err

    ring, ssp = (load_file(tmp_path / out / "model.safetensors") for out in ("ring", "ssp"))
    assert all(torch.allclose(ring[name], ssp[name], rtol=1e-4, atol=1e-6) for name in ring)
    losses = [_losses(tmp_path / out) for out in ("ring", "ssp")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize(
    "more", [(), pytest.param(("--servers", "1"), marks=pytest.mark.exhaustive)], ids=["shared", "dedicated"]
)
def test_a_run_goes_on_from_its_checkpoint(nfold, tmp_path, one_core, more):
    way = ("train", "steady.py", "-n", "2", "--strategy", "ssp", "--staleness", "0", *more, "--debug", "--out")
    assert nfold(*way, "whole", "--steps", "7").code == 0
    assert nfold(*way, "run", "--steps", "4").code == 0
    resumed = nfold("train", "--resume", "run", "--steps", "7", "--debug")

    assert resumed.code == 0, resumed.err
    whole, run = (load_file(tmp_path / out / "model.safetensors") for out in ("whole", "run"))
    assert all(torch.equal(whole[name], run[name]) for name in whole), "without staleness to the last bit"


@pytest.mark.exhaustive
def test_a_run_goes_on_under_another_strategy(nfold, tmp_path):
    begun = ("-n", "2", "--strategy", "ssp", "--staleness", "1", "--steps", "6", "--debug", "--out", "run")
    assert nfold("train", "steady.py", *begun).code == 0
    for strategy, steps in (("ring", 9), ("ps-async", 12)):
        resumed = nfold("train", "--resume", "run", "--strategy", strategy, "--debug", "--steps", steps)
        assert resumed.code == 0, resumed.err
        assert len(_losses(tmp_path / "run")) == steps


def test_the_learning_rate_may_follow_the_staleness(nfold, tmp_path):
    way = ("-n", "2", "--strategy", "ps-async", "--staleness-aware", "--steps", "6", "--debug", "--json")
    result = nfold("train", "steady.py", *way, "--out", "run")

    assert result.code == 0, result.err
    assert sum(result.document()["staleness"].values()) == 2 * 6
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["asynchrony"]["staleness_aware"]


def test_a_loop_over_steps_may_be_left(nfold, tmp_path):
    del nfold
    script = str(tmp_path / "steady.py")
    steps = library.start(script, workers=2, strategy="ps-async", debug=True, out=tmp_path / "run")
    seen = [next(steps).step for _ in range(3)]
    steps.close()

    assert seen == [1, 2, 3]
    assert len(_losses(tmp_path / "run")) == 3
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("strategy", "fault", "fragments"),
    [
        (
            "ps-async",
            "item 399",
            [f"at step {STEP_OF_399}: item 399 of train_data() raised", "OSError: truncated scan"],
        ),
        ("ssp", "nan", ["at step ", "the loss of chunk ", "A smaller learning rate"]),
    ],
)
def test_what_a_program_has_wrong_ends_all_ranks(nfold, monkeypatch, strategy, fault, fragments):
    monkeypatch.setenv("FAULT", fault)

    nfold("train", "faulty.py", "-n", "2", "--strategy", strategy, "--debug").check_explained(*fragments)


@pytest.mark.processes
def test_a_rank_that_dies_is_named(shell):
    shell.environment["FAULT"] = "kill"

    result = shell.run("train", "faulty.py", "-n", "2", "--strategy", "ps-async")

    ended = time.time()
    result.check_explained(f"rank 1 (on {socket.gethostname()}, pid ", "out of memory", "1 other rank stopped because")
    assert re.search(r"was killed by signal 9 \(SIGKILL\) (at|near) step \d+\.", result.message), result.message
    assert ended - float((shell.folder / "fault-time").read_text()) < 2


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--staleness", "2"), ["--staleness 2 is the bound of --strategy ssp, not of auto"]),
        (("--strategy", "ps-async", "--staleness", "2"), ["the bound of --strategy ssp, not of ps-async"]),
        (("--strategy", "ssp", "--staleness", "-1"), ["--staleness -1", "at least 0"]),
        (("--strategy", "ring", "--staleness-aware"), ["--strategy ps-async or ssp", "with ring none is"]),
    ],
    ids=str,
)
def test_what_is_refused_before_any_rank_starts(nfold, tmp_path, arguments, fragments):
    nfold("train", "faulty.py", "-n", "2", *arguments).check_explained(*fragments)

    assert not list(tmp_path.glob("runs/*"))


def _losses(folder):
    entries = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [entry["loss"] for entry in entries if not entry["metrics"]]
