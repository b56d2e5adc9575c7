"""One compute thread per rank: ranks that are threads would otherwise fight over the cores."""

import sys


def pytest_collection_finish() -> None:
    """Set it once tests have loaded torch; machines that decide and do nothing need none of it."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
