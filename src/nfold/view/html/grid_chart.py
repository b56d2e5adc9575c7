"""The placement as a picture: operators in rows, chunks in columns, coloured by the rank that computes the cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.core.text.units import count
from nfold.view.html.charts import SERIES, Chart, Legend, shortened, thinned

_MOST_ROWS = 40
"""More operators than that are joined where neighbours have the same owners."""
_MOST_DRAWN_ROWS = 400
_MOST_DRAWN_CHUNKS = 64
"""With as many rows, about 100 kB of a page that may have 2 MB."""
_MOST_LEGEND = 16
_LABEL_EVERY_PX = 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One operator, or neighbours with the same owners."""

    label: str
    owners: tuple[int, ...]
    """Rank of each chunk."""


def grid_chart(placement: Placement, graph: ModelGraph) -> Chart | None:
    """Draw the grid; None for a placement of nothing."""
    names = [operator.name for operator in graph.operators if operator.name in placement.owners]
    names += sorted(placement.owners.keys() - set(names))
    if not names:
        return None
    kinds = {operator.name: operator.kind for operator in graph.operators}
    rows = grid_rows(names, placement.owners, kinds)
    shown = rows[:_MOST_DRAWN_ROWS]
    chunks = thinned(placement.num_chunks, _MOST_DRAWN_CHUNKS)
    ranks = sorted({rank for row in rows for rank in row.owners})
    height = max(110, min(760, 22 * len(shown)))
    return Chart(
        key="grid",
        title="Who computes what",
        caption=_caption(placement, names, rows, len(ranks), chunks.step),
        kind="grid",
        height=60 + height,
        data={
            "labels": [shortened(row.label) for row in shown],
            "label_every": -(-_LABEL_EVERY_PX * len(shown) // height),
            "chunks": list(chunks),
            "owners": [[row.owners[chunk] for chunk in chunks] for row in shown],
            "colors": _colors(ranks),
        },
        legend=_legend(ranks),
    )


def grid_rows(
    names: Sequence[str], owners: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str], most: int = _MOST_ROWS
) -> list[Row]:
    """Return a row per operator, or per run of equally owned operators where they are too many."""
    labels = {name: f"{name} {kinds[name]}" if kinds.get(name, name) != name else name for name in names}
    if len(names) <= most:
        return [Row(label=labels[name], owners=owners[name]) for name in names]
    rows = []
    for owned, group in groupby(names, key=lambda name: owners[name]):
        run = list(group)
        label = labels[run[0]] if len(run) == 1 else f"{run[0]} to {run[-1]} ({len(run)})"
        rows.append(Row(label=label, owners=owned))
    return rows


def _caption(placement: Placement, names: Sequence[str], rows: Sequence[Row], num_owners: int, every: int) -> str:
    words = (
        f"{count(len(names), 'operator')} by {count(placement.num_chunks, 'chunk')} of the batch; the colour is the "
        "rank that computes the cell."
    )
    if len(rows) < len(names):
        words += " Neighbours with the same owners share a row."
    if len(rows) > _MOST_DRAWN_ROWS:
        words += f" The last {len(rows) - _MOST_DRAWN_ROWS} rows are left out."
    if every > 1:
        words += f" Of {every} chunks one is drawn."
    idle = placement.world_size - num_owners
    return f"{words} {count(idle, 'rank')} without a cell." if idle else words


def _colors(ranks: Sequence[int]) -> dict[int, str]:
    """Return colours that differ between neighbours, and all of them while there are few."""
    if len(ranks) <= len(SERIES):
        return dict(zip(ranks, SERIES, strict=False))
    return {rank: f"hsl({index * 360 // len(ranks)}, 55%, 50%)" for index, rank in enumerate(ranks)}


def _legend(ranks: Sequence[int]) -> Legend:
    colors = _colors(ranks)
    shown = ranks if len(ranks) <= _MOST_LEGEND else (ranks[0], ranks[len(ranks) // 2], ranks[-1])
    return tuple((f"rank {rank}", colors[rank]) for rank in shown)
