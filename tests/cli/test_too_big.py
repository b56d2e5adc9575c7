"""A model whose training state no node has room for."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file

CLUSTER = """
[[node]]
name = "small"
count = 4
cores = 1
memory = "640 MiB"
uplink = "1 Gbit/s"
"""


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_it_trains_within_every_nodes_limit_and_goes_on(shell, nfold, emulation):
    (shell.folder / "c.toml").write_text(CLUSTER)
    shell.finish_s = 200.0
    first = shell.run("train", "too_big.py", "--emulate", "c.toml", "--chunks", "4", "--steps", "1", "--out", "limited")
    assert first.code == 0, first.err
    plan = json.loads((shell.folder / "limited/plan.json").read_text())
    (ring,) = [each["why"] for each in plan["rejected"] if each["strategy"] == "ring"]
    needed = [int(mib) for mib in re.findall(r"1 rank needs (\d+) MiB on ", ring)]
    assert needed, "data parallelism is refused with the numbers"
    assert min(needed) > 640
    assert "640 MiB (" in ring
    assert all(f"small-{index}" in ring for index in range(4)), "of every node"
    second = shell.run("train", "--resume", "limited", "--steps", "2")
    assert second.code == 0, second.err
    history = [json.loads(line) for line in (shell.folder / "limited/history.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in history if "test_loss" in entry["metrics"]] == [1, 2], "each ended in one"

    nfold("train", "too_big.py", "--debug", "-n", "1", "--chunks", "4", "--steps", "2", "--out", "alone")
    found, expected = (load_file(shell.folder / name / "model.safetensors") for name in ("limited", "alone"))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-6), name
