"""Whole commands on three hosts are stopped while samples move, and go on. The benchmark does so a hundred times."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "edge" / "stopped_moves" / "run.py"


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["the command", "the host of a rank that fetches", "Ctrl-C", "SIGTERM", "nfold stop"])
def test_each_sample_is_there_once_and_the_rest_alone_is_fetched(way):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--times", "1", "--only-check", "--way", way]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("each sample once") == 1
