"""Figures in Prometheus' text format, version 0.0.4: a line for each, with its labels.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isinf, isnan
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
"""Names and values."""


@dataclass(frozen=True, slots=True)
class Family:
    """Figures of one name, each with other labels."""

    name: str
    kind: Literal["counter", "gauge"]
    told: str
    """What it is, with its unit."""
    figures: Mapping[Labels, float]


def prometheus_text(families: Iterable[Family]) -> str:
    """Return what Prometheus reads; families without a figure are left out."""
    return "".join(_family_text(family) for family in families if family.figures)


def _family_text(family: Family) -> str:
    lines = [
        f"# HELP {family.name} {_escaped(family.told)}",
        f"# TYPE {family.name} {family.kind}",
        *(f"{family.name}{_labels(labels)} {_value(value)}" for labels, value in family.figures.items()),
    ]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in labels)
    return f"{{{told}}}" if told else ""


def _escaped(text: str, *, quoted: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quoted else escaped


def _value(value: float) -> str:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
