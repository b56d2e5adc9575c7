"""How many workers help, in words; apart from the verdict, since a text is shown without loading what finds it."""

from collections.abc import Sequence

from nfold.core.report import Gain
from nfold.core.text.units import count


def own_limit(gains: Sequence[Gain], useful: int, strategy: str) -> str:
    """Return `more than 5 workers`, with the run's strategy where gains beside it are of another: it has a limit too.

    Args:
        gains: that stand beside it.
        useful: workers.
        strategy: of the run.
    """
    own = f"with {strategy}, " if any(gain.change.startswith("`--strategy") for gain in gains) else ""
    return f"{own}more than {count(useful, 'worker')}"
