"""The second run of a program trains without measuring it, and learns what the first one learnt."""

import json

import pytest

SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path

import steady


def accuracy(outputs, targets):
    Path("modules.txt").write_text("\\n".join(sys.modules))
    return steady.accuracy(outputs, targets)


def program():
    return replace(steady.program(), metrics={"accuracy": accuracy})
"""
STEPS = ("--steps", "4", "--strategy", "single")
USED = "note: measurements of an earlier run are used"
OF_MEASURING = ("nfold.capture.proof.prove", "sympy")


@pytest.mark.processes
def test_a_program_that_was_measured_trains_at_once(shell):
    script, cache = shell.folder / "script.py", shell.folder / "cache"
    script.write_text(SCRIPT)
    shell.environment["XDG_CACHE_HOME"] = str(cache)

    def train(out):
        said = shell.run("train", script, *STEPS, "--out", out)
        assert said.code == 0, said.err
        rows = map(json.loads, (shell.folder / out / "history.jsonl").read_text().splitlines())
        loaded = (shell.folder / "modules.txt").read_text().split("\n")
        learnt = [(row["loss"], row["metrics"]) for row in rows]
        return learnt, USED in said.err, [name for name in OF_MEASURING if name in loaded]

    assert shell.run("plan", script, *STEPS).code == 0
    assert len(list((cache / "nfold").iterdir())) == 1
    second, is_used, loaded = train("second")
    assert (is_used, loaded) == (True, [])
    helper = shell.folder / "numbers_of_this_program.py"
    helper.write_text(helper.read_text() + "# edited\n")
    first, is_used, loaded = train("first")
    assert (is_used, loaded) == (False, list(OF_MEASURING))
    assert second == first
    models = [(shell.folder / out / "model.safetensors").read_bytes() for out in ("first", "second")]
    assert models[0] == models[1]
