"""One of the nets on small images, chosen by the benchmark, without test data."""

import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))
import nets32  # a script's siblings are found only after this

import nfold


def program() -> nfold.Program:
    """Return the program that the environment names."""
    made = getattr(nets32, f"program_{os.environ['MEMORY_NET']}")()
    return replace(made, batch_size=int(os.environ["MEMORY_BATCH"]), test_data=None, metrics={})
