"""demo: the real handwritten digits, trained with one worker, a ring and a parameter server."""

from pathlib import Path

from nfold.core.findings.comparison import Comparison
from nfold.errors import InternalError
from nfold.verbs.compare import compare
from nfold.verbs.running.observer import Observer

DIGITS = "digits.py"


def demo(*, workers: int = 2, out: str | Path | None = None, observer: Observer | None = None) -> Comparison:
    """Train the digits three ways to the end of the program's epochs.

    Raises:
        NfoldError: as `train` does.
    """
    return compare(digits_script(), workers=(1, workers), strategies=("ring", "ps"), out=out, observer=observer)


def digits_script() -> Path:
    """Return the example's path: inside the installed package, or in the source tree."""
    package = Path(__file__).parent.parent
    for path in (package / "examples" / DIGITS, package.parent.parent / "examples" / DIGITS):
        if path.is_file():
            return path
    raise InternalError(f"{DIGITS} is missing from this installation of nfold")
