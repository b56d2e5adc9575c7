"""The picture of a placement."""

from nfold.core.placement import Placement
from nfold.view.grid import MOST_ROWS, grid_picture
from nfold.view.rendering import Look

HYBRID = Placement(
    num_chunks=4,
    world_size=3,
    owners={
        "conv1": (0, 1, 0, 1),
        "relu1": (0, 1, 0, 1),
        "fc": (2, 2, 2, 2),
        "act": (2, 2, 2, 2),
        "loss": (0, 0, 0, 0),
    },
)


def test_operators_with_the_same_owners_are_one_row():
    assert grid_picture(HYBRID) == (
        "         chunk 0 1 2 3\n"  #
        "conv1 .. relu1 0 1 0 1\n"
        "fc .. act      2 2 2 2\n"
        "loss           0 0 0 0\n"
    )


def test_chunks_that_do_not_fit_go_into_blocks_below():
    text = grid_picture(HYBRID, look=Look(width=19))
    assert text.splitlines() == [
        "         chunk 0 1",
        "conv1 .. relu1 0 1",
        "fc .. act      2 2",
        "loss           0 0",
        "",
        "         chunk 2 3",
        "conv1 .. relu1 0 1",
        "fc .. act      2 2",
        "loss           0 0",
    ]


def test_a_terminal_gets_a_colour_for_each_rank():
    text = grid_picture(HYBRID, look=Look(width=100, is_terminal=True, color=True))
    codes = {text[: text.index("m")] for text in text.split("\x1b[")[1:] if not text.startswith("0m")}
    assert len(codes) == 3
    plain = grid_picture(HYBRID, look=Look(width=100, is_terminal=True, color=False))
    assert "\x1b" not in plain


def test_long_names_keep_their_ends_and_many_rows_are_counted():
    owners = {f"encoder.layers.{index}.attention.self.query.projection": (index % 2,) for index in range(60)}
    text = grid_picture(Placement(num_chunks=1, world_size=2, owners=owners))
    assert text.count("\n") == 1 + MOST_ROWS + 1
    assert f"and {60 - MOST_ROWS} more rows" in text
    assert max(map(len, text.splitlines())) <= 50
    assert "projection 1" in text
