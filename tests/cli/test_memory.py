"""The memory that a run takes is what was predicted of it."""

import json

import pytest


@pytest.mark.exhaustive
@pytest.mark.processes
def test_peak_memory_is_predicted_within_15_percent(shell):
    result = shell.run("train", "bulky.py", "--strategy", "single", "--steps", "3", "--checkpoint-every", "0", "--json")
    assert result.code == 0, result.err
    plan = json.loads((shell.folder / "runs/bulky-1/plan.json").read_text())
    (predicted,) = plan["predicted"]["peak_memory_bytes"]
    measured = result.document()["peak_rss_bytes"]
    assert measured > 600 << 20, "three layers of 64 MiB each, and twice that in backward, on top of torch itself"
    assert predicted == pytest.approx(measured, rel=0.15)
