"""What starting costs before there is anything to do."""

import os
import subprocess
import sys

import pytest

MOST_S = 0.3
HEAVY = ("torch", "numpy", "sklearn", "rich", "safetensors")
HELP = "from nfold.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"


@pytest.mark.parametrize("code", ["import nfold", HELP], ids=["import nfold", "nfold --help"])
def test_a_start_is_short_and_loads_nothing_heavy(code):
    look = f"import sys\nprint('loaded:', *(name for name in {HEAVY} if name in sys.modules))"
    costs_s = []
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", f"{code}\n{look}"], stdout=subprocess.PIPE, text=True) as process:
            said = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert said.splitlines()[-1] == "loaded:"
        costs_s.append(used.ru_utime + used.ru_stime)
    assert min(costs_s) <= MOST_S, "of processor time, which other programs do not add to"


def test_the_package_is_a_command_too():
    asked = [
        subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60)
        for module in ("nfold", "nfold.cli.main")
    ]
    assert asked[0].returncode == 0
    assert asked[0].stdout == asked[1].stdout != ""
