"""A job that was killed goes on from its checkpoint and ends where it would have ended, to the last bit."""

import json
import os
import random
import shutil
import signal

import pytest
import torch
from event_reading import read_points
from safetensors import safe_open
from safetensors.torch import load_file

import nfold as library

WAYS = {
    "ps x2 + 1 server": ("-n", "2", "--strategy", "ps", "--servers", "1"),
    "single": ("-n", "1", "--strategy", "single"),
    "ring x2, clipped, scheduled, autocast": ("-n", "2", "--strategy", "ring"),
}
SCRIPTS = {"ring x2, clipped, scheduled, autocast": "steady.py:elaborate"}
CURVES = ("--tensorboard", "curves")
RESUMED_AS_THREADS = ("single", "ring x2, clipped, scheduled, autocast")
"""Saves seconds; the bits are the same."""
EPOCHS, STEPS_PER_EPOCH = 20, 5


@pytest.mark.processes
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.exhaustive] * ("ring" not in way)) for way in WAYS]
)
def test_a_killed_job_goes_on_bit_for_bit(shell, nfold, wait_for_end, monkeypatch, one_core, way):
    monkeypatch.setenv("EPOCHS", str(EPOCHS))
    script = SCRIPTS.get(way, "steady.py")
    whole = nfold("train", script, *WAYS[way], "--debug", "--json", "--out", "whole", *CURVES)
    assert whole.code == 0, whole.err

    _kill_at_random(shell, wait_for_end, way, script, "killed")
    optimizer = _facts(shell.folder / "killed" / "checkpoint.safetensors")["optimizer"]
    assert optimizer == ("AdamW" if way in SCRIPTS else "SGD"), "whichever rank holds its state"
    expected = load_file(shell.folder / "whole" / "model.safetensors")
    if way == "ps x2 + 1 server":
        _check_that_other_ranks_can_go_on(shutil.copytree(shell.folder / "killed", shell.folder / "copy"), expected)
    if way in RESUMED_AS_THREADS:
        resumed = nfold("train", "--resume", "killed", "--json", "--debug")
    else:
        resumed = shell.run("train", "--resume", "killed", "--json")

    assert resumed.code == 0, resumed.err
    assert "the optimizer goes on with" not in resumed.err, "the checkpoint's settings are the program's"
    _check_equal(expected, load_file(shell.folder / "killed" / "model.safetensors"))
    assert _lines(shell.folder / "killed") == _lines(shell.folder / "whole"), "each step once, with the same loss"
    assert len(list((shell.folder / "curves" / "killed").iterdir())) == 2, "it is drawn on without being asked again"
    drawn, undisturbed = (read_points(shell.folder / "curves" / name) for name in ("killed", "whole"))
    assert [step for step, _ in drawn["loss"]] == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert [drawn[name] for name in ("loss", "accuracy")] == [undisturbed[name] for name in ("loss", "accuracy")]


def test_a_run_goes_on_with_a_script_that_was_moved(nfold, tmp_path):
    assert nfold("train", "steady.py:elaborate", "--debug", "--steps", "5", "--out", "mine").code == 0
    (tmp_path / "moved").mkdir()
    moved = tmp_path / "moved" / "steady.py"
    (tmp_path / "steady.py").rename(moved)
    again = ("--resume", "mine", "--steps", "6", "--debug", "--json")

    nfold("train", *again).check_explained("steady.py, does not exist any more", "nfold train FILE.py --resume mine")
    done = nfold("train", str(moved), *again)

    assert done.code == 0, done.err
    assert json.loads((tmp_path / "mine" / "job.json").read_text())["source"] == f"{moved}:elaborate"


def test_a_checkpoint_that_was_lost_is_not_taken_for_none(nfold, tmp_path):
    assert nfold("train", "steady.py", "--debug", "--steps", "7", "--out", "mine").code == 0
    checkpoint, history = tmp_path / "mine" / "checkpoint.safetensors", tmp_path / "mine" / "history.jsonl"
    before, whole = history.read_text(), checkpoint.read_bytes()
    again = ("train", "--resume", "mine", "--steps", "9", "--debug", "--json")

    for damaged, what in ((b"", "it has 0 bytes"), (whole[:-1], f"it has {len(whole) - 1} of {len(whole)} bytes")):
        checkpoint.write_bytes(damaged)
        nfold(*again).check_explained("mine/checkpoint.safetensors: the checkpoint is damaged", what, "begin a new run")
    checkpoint.unlink()
    nfold(*again).check_explained(
        "mine/checkpoint.safetensors is gone, and without it the 7 steps", "Put it back, or begin a new run"
    )

    assert history.read_text() == before
    checkpoint.write_bytes(whole)
    assert nfold(*again).code == 0


def test_a_run_that_wrote_no_checkpoint_begins_anew_and_says_so(nfold, tmp_path):
    never = ("--checkpoint-every", "0", "--debug", "--json")
    assert nfold("train", "steady.py", "--steps", "7", *never, "--out", "mine").code == 0

    resumed = nfold("train", "--resume", "mine", "--steps", "9", *never)

    assert resumed.code == 0, resumed.err
    assert "note: the run in mine wrote no checkpoint, so it begins anew: the 7 steps in" in resumed.err
    assert [line["step"] for line in _lines(tmp_path / "mine") if not line["metrics"]] == list(range(1, 10))


def test_an_evaluation_is_made_up_for_after_the_history_lost_its_end(nfold, tmp_path):
    assert nfold("train", "steady.py", "--debug", "--steps", "5", "--out", "mine").code == 0
    before = _lines(tmp_path / "mine")
    assert before[-1]["metrics"]
    history = tmp_path / "mine" / "history.jsonl"
    *kept, lost = history.read_text().splitlines(keepends=True)
    history.write_text("".join(kept) + lost[: len(lost) // 2])

    resumed = nfold("train", "--resume", "mine", "--steps", "7", "--debug", "--json")

    assert resumed.code == 0, resumed.err
    lines = _lines(tmp_path / "mine")
    assert lines[: len(before)] == before
    assert [line["step"] for line in lines if not line["metrics"]] == list(range(1, 8))
    times = [json.loads(line)["at_s"] for line in history.read_text().splitlines()]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("change", "flags", "why"),
    [
        ("lambda: load(SAMPLES, 1)", (), "begun with 76 samples in train_data(), and the program has 75 samples"),
        ("Net,", (), "boom"),
        ("", ("-n", "2", "--strategy", "ring", "--first-step-within", "1e-9"), "the first step would take"),
    ],
)
def test_a_resume_that_is_refused_leaves_every_file_as_it_was(nfold, tmp_path, change, flags, why):
    never = ("--checkpoint-every", "0", "--debug", "--json")
    assert nfold("train", "steady.py", "--steps", "7", *never, "--out", "mine").code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    assert len(before["history.jsonl"].splitlines()) > 7, "all of it would be done again"
    before["log.txt"] = b"what was said so far\n"
    (tmp_path / "mine" / "log.txt").write_bytes(before["log.txt"])
    others = {"lambda: load(SAMPLES, 1)": "lambda: load(SAMPLES - 1, 1)", "Net,": "lambda: boom(),"}
    script = tmp_path / "steady.py"
    script.write_text(script.read_text().replace(change, others.get(change, "")))

    nfold("train", "--resume", "mine", "--steps", "9", *flags, *never).check_explained(why)

    assert {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == before


@pytest.mark.parametrize(
    ("chunks", "flags", "why"),
    [
        (1, ("--chunks", "3"), "begun with 1 chunk, and their number is part of its result. Leave out --chunks 3."),
        (1, ("-n", "2", "--strategy", "ring"), "begun with 1 chunk, too few for 2 workers. Use -n 1. Where"),
        (4, ("-n", "5", "--strategy", "ps"), "begun with 4 chunks, too few for 5 workers. Use -n 4 or fewer. Where"),
    ],
)
def test_chunks_stay_as_they_are(nfold, chunks, flags, why):
    assert nfold("train", "steady.py", "--steps", "1", "--chunks", chunks, "--debug", "--out", "mine").code == 0

    nfold("train", "--resume", "mine", "--steps", "9", "--debug", "--json", *flags).check_explained(why)


def test_a_run_of_one_chunk_goes_on_on_more_ranks_that_share_the_operators(nfold, tmp_path):
    debug = ("--debug", "--json")
    whole = nfold("train", "steady.py", "--chunks", "1", "--strategy", "single", "--steps", "9", *debug, "--out", "all")
    assert whole.code == 0, whole.err
    alone = nfold(
        "train", "steady.py", "--chunks", "1", "--strategy", "single", "--steps", "5", *debug, "--out", "mine"
    )
    assert alone.code == 0, alone.err

    resumed = nfold("train", "--resume", "mine", "--steps", "9", "-n", "2", "--strategy", "pipeline", *debug)

    assert resumed.code == 0, resumed.err
    plan = json.loads((tmp_path / "mine" / "plan.json").read_text())
    assert (plan["strategy"], plan["workers"], plan["chunks"]) == ("pipeline", 2, 1)
    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("all", "mine"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


def _kill_at_random(shell, wait_for_end, way, script, out):
    """Kill the coordinator, and for one of the ways its ranks as well, in the middle of a random epoch."""
    epoch = random.Random(way).randrange(2, 5)
    job = shell.start("train", script, *WAYS[way], "--checkpoint-every", "3", "--out", out, *CURVES)
    assert next(line for line in job.stderr if line.startswith(f"epoch {epoch}/"))
    ranks = [pid for pid in shell.processes() if pid != job.pid]
    for pid in (job.pid, *(ranks if way == "ps x2 + 1 server" else ())):
        os.kill(pid, signal.SIGKILL)
    job.communicate()

    assert ranks
    assert wait_for_end(ranks, 2.0) < 2
    assert 3 * STEPS_PER_EPOCH < len(_lines(shell.folder / out)) * 3 < 3 * EPOCHS * STEPS_PER_EPOCH
    assert not (shell.folder / out / "model.safetensors").exists()


def _check_that_other_ranks_can_go_on(folder, expected):
    run = library.resume(folder, workers=1, strategy="single", debug=True)

    for name, tensor in run.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-4)
    assert [line["step"] for line in run.history if not line["metrics"]] == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))


def _check_equal(expected, found):
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


def _facts(checkpoint):
    with safe_open(checkpoint, framework="pt") as file:
        return json.loads(file.metadata()["nfold"])


def _lines(folder):
    """The history without its clock."""
    whole = [line for line in (folder / "history.jsonl").read_text().splitlines() if line.endswith("}")]
    return [{key: value for key, value in json.loads(line).items() if key != "at_s"} for line in whole]
