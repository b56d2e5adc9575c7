"""The loss so far as lines in a square of 1000 by 1000, which the page stretches; so no script has to draw it."""

from collections.abc import Sequence
from dataclasses import dataclass

from nfold.view.html.charts import BLUE, ORANGE

Points = Sequence[tuple[int, float]]
"""(step, loss), in the order of steps."""
_SIDE = 1000
_MOST_POINTS = 600
"""Of a line: two for a pixel would not be seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Points joined by a line."""

    what: str
    color: str
    points: str
    """`x,y x,y ..`, from the upper left corner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurve:
    """Lines over the same steps."""

    lines: tuple[Line, ...]
    first_step: int
    last_step: int
    low: float
    high: float
    caption: str

    @property
    def middle(self) -> float:
        """Return the loss at half of the height."""
        return (self.low + self.high) / 2


def loss_curve(trained: Points, tested: Points) -> LossCurve | None:
    """Return the lines of the loss of steps and of that of evaluations; None: there are no two points to join.

    Of many steps each point is the mean of some that follow each other.
    """
    together = max(1, -(-len(trained) // _MOST_POINTS))
    given = {"training loss": (BLUE, _joined(trained, together)), "test loss": (ORANGE, tested)}
    every = [point for _, points in given.values() for point in points]
    if len(every) < 2:
        return None
    steps, losses = [step for step, _ in every], [loss for _, loss in every]
    low, high = _span(min(losses), max(losses))
    shape = min(steps), max(steps), low, high
    lines = tuple(
        Line(what=what, color=color, points=_placed(points, *shape))
        for what, (color, points) in given.items()
        if points
    )
    caption = f"Training loss: each point is the mean of {together}." if together > 1 else ""
    return LossCurve(lines=lines, first_step=shape[0], last_step=shape[1], low=low, high=high, caption=caption)


def _joined(points: Points, together: int) -> Points:
    groups = [points[first : first + together] for first in range(0, len(points), together)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


def _span(low: float, high: float) -> tuple[float, float]:
    """Give a line that is level a height to lie in."""
    return (low, high) if high > low else (low - max(0.5 * abs(low), 1e-9), high + max(0.5 * abs(high), 1e-9))


def _placed(points: Points, first: int, last: int, low: float, high: float) -> str:
    def place(step: int, loss: float) -> str:
        x, y = (step - first) / max(1, last - first), (high - loss) / (high - low)
        return f"{_SIDE * x:.1f},{_SIDE * y:.1f}"

    return " ".join(place(*point) for point in points)
