"""Which net and which strategy a schedule has, by its number."""

from nets import NETS

STRATEGIES = ("ring", "ps", "weighted", "pipeline", "hybrid", "hypergraph")
WHOLE = ("ring", "ps", "weighted")
"""Those that never cut a model, which some nets do not bear."""


def net_and_strategy(number: int) -> tuple[str, str]:
    """Return both."""
    net = list(NETS)[number % len(NETS)]
    choices = WHOLE if net == "tied" else STRATEGIES
    return net, choices[number // len(NETS) % len(choices)]
