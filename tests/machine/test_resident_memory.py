"""A process's peak begins anew when it has settled."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from nfold.machine.resident_memory import peak_bytes, settle
before = peak_bytes()
data = bytearray(200 << 20)
high = peak_bytes()
del data
settle()
print(high - before > 190 << 20, peak_bytes() < high - (150 << 20))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_peak_is_forgotten_when_a_process_settles():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
