"""Decides which evaluation's model is kept as the best so far. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from nfold.errors import PlanError

FORM = "best:"
_SIDES = ("max", "min")
_LOW = frozenset(
    ("loss", "error", "err", "mse", "rmse", "mae", "mape", "nll", "perplexity", "ppl", "wer", "cer", "fid"),
)
_HIGH = frozenset(
    (
        *("accuracy", "acc", "top1", "top5", "right", "correct", "score", "auc", "auroc", "f1", "precision", "recall"),
        *("iou", "miou", "dice", "map", "bleu", "rouge", "psnr", "ssim", "r2", "ndcg", "mrr"),
    )
)
"""Words of names whose low, and high, values are better; of another name nothing is guessed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    """The metric by which a model is the best, and whether high or low values are better."""

    metric: str
    side: str
    """Which values are better: `max` or `min`; empty where nobody said, which `check_keep` refuses."""

    def beats(self, value: float, other: float | None) -> bool:
        """Whether a value is better than the best so far; of equal ones the first stays, and NaN is never better."""
        if isnan(value):
            return False
        return other is None or (value > other if self.side == "max" else value < other)


def read_keep(text: str) -> Keep:
    """Read `best:METRIC`, `best:METRIC:max` or `best:METRIC:min`.

    Raises:
        PlanError: it is something else.
    """
    metric, colon, side = text.removeprefix(FORM).rpartition(":")
    if not colon or side not in _SIDES:
        metric, side = text.removeprefix(FORM), ""
    if not text.startswith(FORM) or not metric:
        raise PlanError(f"--keep {text!r}: it must be best:METRIC, as in best:accuracy or best:test_loss:min")
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    likely = [side] if side else [name for name, known in (("max", _HIGH), ("min", _LOW)) if words & known]
    return Keep(metric=metric, side=likely[0] if len(likely) == 1 else "")


def check_keep(keep: Keep, metrics: Collection[str], *, has_test: bool, evaluates: bool) -> None:
    """Refuse to keep the best at what is not evaluated, or where high values may be as good as low ones.

    Args:
        keep: what was asked for.
        metrics: names of all that an evaluation gives.
        has_test: whether the program has test data.
        evaluates: whether the run evaluates them.

    Raises:
        PlanError: see the message.
    """
    told = f"--keep {FORM}{keep.metric} keeps the model of the best evaluation"
    if not has_test:
        raise PlanError(f"{told}, and the program has no test data. Give Program(test_data=...), or leave --keep out.")
    if not evaluates:
        raise PlanError(f"{told}, and this run evaluates nothing (evaluate=False). Leave one of the two out.")
    if keep.metric not in metrics:
        raise PlanError(
            f"{told}, and there is no metric {keep.metric!r}. The program has: {', '.join(sorted(metrics))}. "
            "Name one of these, or add it: Program(metrics={...})."
        )
    if not keep.side:
        raise PlanError(
            f"--keep {FORM}{keep.metric}: the name does not say whether high or low values are better. "
            f"Use {FORM}{keep.metric}:max or {FORM}{keep.metric}:min."
        )


class BestSoFar:
    """Remembers the best value of a metric from evaluation to evaluation."""

    def __init__(self, keep: Keep | None, value: float | None) -> None:
        self.keep, self._value, self._before = keep, value, value

    def take(self, step: int, metrics: Mapping[str, float]) -> dict[str, Any] | None:
        """Take in an evaluation's metrics.

        Returns:
            `step`, `metric` and `value`, which the model's file is to say, if it is the best so far; else None.
        """
        if self.keep is None or not self.keep.beats(metrics.get(self.keep.metric, float("nan")), self._value):
            return None
        self._before, self._value = self._value, metrics[self.keep.metric]
        return {"step": step, "metric": self.keep.metric, "value": self._value}

    def forget_last(self) -> None:
        """Take back the last evaluation that was the best so far: its model was lost before it was kept."""
        self._value = self._before
