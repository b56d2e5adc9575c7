"""A ResidencyPlan as a table and as sentences: what each node holds, does and sends, and what that brings."""

from textwrap import fill

from nfold.core.residency import NodeShare, ResidencyPlan, RunCost, TriedMethod
from nfold.core.text.units import count, duration, percent, size
from nfold.view.rendering import NONE, PLAIN, Look, render

MOST_ROWS = 40
_HEAD = ["node", "holds now", "will hold", "sends", "receives", "share", "computes", "role"]
_ROLES = {"nothing": "as it is", "waterfill": "balance, gradients aside", "overlap": "the same while training"}


def place_text(plan: ResidencyPlan, *, look: Look = PLAIN) -> str:
    """Return a row for each node, the cost beside that of other ways to decide, and why.

    Args:
        plan: what was planned.
        look: where it will be read.
    """
    shown = plan.nodes[:MOST_ROWS]
    hidden = len(plan.nodes) - len(shown)
    nodes = render(_HEAD, [_row(node) for node in shown], look, numeric=False)
    more = f"{count(hidden, 'more node')}: --json has all\n" if hidden else ""
    costs = render(["way", "move", "first epoch", "epoch", "gradients", "run"], _cost_rows(plan), look, numeric=True)
    sentences = "\n".join(fill(sentence, look.width) for sentence in plan.sentences)
    return f"{title(plan)}\n{nodes}{more}\n{costs}\n{sentences}"


def title(plan: ResidencyPlan) -> str:
    """Return what was asked, in a line."""
    data = size(plan.before.num_samples * plan.before.sample_bytes)
    return (
        f"{count(plan.before.num_samples, 'sample')} ({data}) on {count(len(plan.nodes), 'node')}, "
        f"{count(plan.epochs, 'epoch')}, batch {plan.batch_size}, {plan.traffic}; predicted:"
    )


def role(node: NodeShare) -> str:
    """Return what a node is for."""
    if node.is_member:
        return "trains"
    return "data, no gradients" if node.held else "idle"


def _row(node: NodeShare) -> list[str]:
    sends = size(node.sends_bytes) if node.sends_bytes else NONE
    receives = size(node.receives_bytes) if node.receives_bytes else NONE
    share, computes = (percent(node.share), duration(node.computes_s)) if node.is_member else (NONE, NONE)
    return [node.node, str(node.held), str(node.holds), sends, receives, share, computes, role(node)]


def _cost_rows(plan: ResidencyPlan) -> list[list[str]]:
    return [_cost_row("this plan", plan.cost), *(_tried_row(tried) for tried in plan.tried)]


def _tried_row(tried: TriedMethod) -> list[str]:
    name = _ROLES.get(tried.method, "")
    label = f"{tried.method} ({name})" if name else tried.method
    return [f"{label}: {tried.note}", *[NONE] * 5] if tried.cost is None else _cost_row(label, tried.cost)


def _cost_row(name: str, cost: RunCost) -> list[str]:
    seconds = (cost.move_s, cost.first_epoch_s, cost.epoch_s, cost.sync_s, cost.run_s)
    return [name, *(duration(value) if value else NONE for value in seconds)]
