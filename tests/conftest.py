"""Lets tests of a folder share modules that lie beside them, and skips what this machine cannot do."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from nfold.errors import ClusterError
from nfold.launch.emulation.box import check_machine
from nfold.launch.emulation.cgroups import MOUNTS, find_hierarchy

for folder in ("runtime", "view"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

settings.register_profile("quick", max_examples=20)


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
