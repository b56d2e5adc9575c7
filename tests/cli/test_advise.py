"""nfold advise, as typed."""

import json

import pytest

from nfold.core import codec
from nfold.core.findings.node_advice import Advice

CLUSTER = """
[[node]]
name = "n"
count = 3
cores = 1
uplink = "100 Mbit/s"
price_per_hour = 0.05
"""


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["advise", "steady.py"], ["none are given", "--emulate cluster.toml"]),
        (["advise", "steady.py", "--on", "ssh:none.txt"], ["none.txt"]),
        (["advise", "steady.py", "--emulate", "c.toml", "--nodes", "8:1"], ["--nodes 8:1", "as in 1:64"]),
        (["advise", "steady.py", "--emulate", "c.toml", "-n", "2"], ["there is no flag -n", "nfold advise --help"]),
    ],
    ids=" ".join,
)
def test_what_is_refused_before_anything_starts(nfold, tmp_path, arguments, fragments):
    (tmp_path / "c.toml").write_text(CLUSTER)
    nfold(*arguments).check_explained(*fragments)


@pytest.mark.processes
def test_three_nodes_are_measured_and_more_are_foretold(shell, emulation):
    (shell.folder / "c.toml").write_text(CLUSTER)
    result = shell.run("advise", "steady.py", "--emulate", "c.toml", "--nodes", "4", "--within", "1h", "--json")
    assert result.code == 0, result.err
    found = codec.decode(Advice, json.loads(result.out))
    assert found.measured == ("n-0", "n-1", "n-2")
    assert [(size.nodes, size.num_measured) for size in found.sizes] == [(1, 1), (2, 2), (3, 3), (4, 3)]
    runs = [size.forecast for size in found.sizes]
    assert all(run.step_s > 0 and run.run_s == run.step_s * found.total_steps for run in runs)
    assert [run.cost / run.run_s for run in runs] == pytest.approx([0.05 * size.nodes / 3600 for size in found.sizes])
    assert found.in_time == 1
    assert not (shell.folder / "runs").exists(), "nothing was trained"
