"""What a report says of data that live on nodes."""

from dataclasses import replace

from nfold.core.report import DataPlaces, PlacedShare
from nfold.view.explain import places_text

PLACES = DataPlaces(
    method="joint",
    nodes=(
        PlacedShare(node="pi", held=900, holds=0),
        PlacedShare(node="desk", held=0, holds=700),
        PlacedShare(node="attic", held=100, holds=300),
    ),
    before_bytes=2 << 20,
    before_s=3.0,
    beside_bytes=0,
    predicted_s=2.0,
)


def test_it_says_who_trains_who_gave_all_away_and_what_moved():
    assert places_text(PLACES) == (
        "Samples by node (--place joint): desk 700 (held 0), attic 300 (held 100). pi sent all data and no gradients. "
        "2.00 MiB moved before training, in 3.00 s (predicted: 2.00 s)."
    )


def test_it_says_what_moved_while_training_and_where_nothing_did():
    beside = replace(PLACES, nodes=PLACES.nodes[1:], before_bytes=0, beside_bytes=1 << 10, predicted_s=None)
    assert places_text(beside).endswith("1.00 KiB moved while training.")
    assert places_text(replace(beside, beside_bytes=0)).endswith("Nothing moved.")


def test_many_nodes_are_a_few_of_them():
    many = replace(PLACES, nodes=tuple(PlacedShare(node=f"n{i}", held=1, holds=1) for i in range(20)))
    assert "n7 1 (held 1) and 12 more." in places_text(many)


def test_it_says_nothing_where_all_ranks_read_all_data():
    assert places_text(None) == ""
