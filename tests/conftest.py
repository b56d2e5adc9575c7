"""Lets tests of a folder share modules that lie beside them, and skips what this machine cannot do."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from nfold.errors import ClusterError
from nfold.launch.emulation.cgroups import MOUNTS, find_hierarchy
from nfold.launch.emulation.emulated_cluster import check_machine

for folder in ("rigs", "runtime", "view"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

pytest_plugins = ["job_systems", "nat"]

# No deadlines: on shared cores they judge the machine.
settings.register_profile("patient", deadline=None)
settings.register_profile("quick", max_examples=20, deadline=None)
settings.load_profile("patient")


def pytest_configure(config) -> None:
    """Let runs find nothing of earlier ones, neither of the user's nor of other tests': the cache cannot be written.

    They are listed apart from the user's.
    """
    config.cache_home = Path(tempfile.mkdtemp(prefix="nfold-tests-"))
    (config.cache_home / "nfold").write_text("a file where a folder would be")
    os.environ["XDG_CACHE_HOME"] = str(config.cache_home)
    os.environ["XDG_STATE_HOME"] = str(config.cache_home / "state")


def pytest_unconfigure(config) -> None:
    shutil.rmtree(config.cache_home, ignore_errors=True)


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over what has been imported and stays, as ranks do.

    Jobs collect to give memory back: looking through all of torch takes a fifth of the time of tests that run them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def emulation():
    """Skip where clusters cannot be emulated, whatever the reason; where they can, nothing here may hide a failure."""
    try:
        check_machine()
        find_hierarchy(MOUNTS.read_text())
        subprocess.run(["unshare", "--net", "--mount", "true"], check=True, capture_output=True)
    except (ClusterError, OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no cluster can be emulated here: {error}")


STOLEN = 0.05
"""Share of the processors from which on nothing that was measured can be judged."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """Skip a test that judges measurements, and fails, where the hypervisor gave the processors to others meanwhile."""
    if item.get_closest_marker("quiet") is None:
        yield
        return
    before = processor_ticks()
    outcome = yield
    if outcome.excinfo is None:
        return
    total, stolen = (after - earlier for after, earlier in zip(processor_ticks(), before, strict=True))
    if issubclass(outcome.excinfo[0], AssertionError) and stolen > STOLEN * total:
        said = str(outcome.excinfo[1]).splitlines()[0]
        outcome.force_exception(pytest.skip.Exception(f"{stolen / total:.0%} of the processors were stolen: {said}"))


def processor_ticks():
    """Return the ticks of all processors since the machine began, and those that the hypervisor kept from them."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0, 0
    fields = [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), fields[7]
