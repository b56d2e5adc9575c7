"""Nodes that are processes are killed while samples move. The benchmark does so a hundred times."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "edge" / "exactly_once" / "run.py"


@pytest.mark.processes
def test_no_sample_is_lost_doubled_or_changed_by_kills():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--times", "8", "--only-check"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("each sample once") == 8
