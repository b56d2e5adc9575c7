"""A link that is too slow to train over is refused at once, with the estimate."""

import pytest

CLUSTER = """
[[node]]
name = "n"
count = 2
cores = 1
uplink = "100 Mbit/s"
downlink = "1 kbit/s"
"""


@pytest.mark.processes
def test_a_link_too_slow_for_a_first_step_is_refused_before_it_is_probed(shell, emulation):
    (shell.folder / "c.toml").write_text(CLUSTER)
    result = shell.run("train", "steady.py", "--emulate", "c.toml", "--strategy", "ring", "--first-step-within", "5")
    result.check_explained("the first step would take about ", "the 5 s allowed", "n-0's downlink moves 0.001 Mbit/s")
