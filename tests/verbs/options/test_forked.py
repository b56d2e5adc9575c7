"""Whose ranks are forked: as a command asks before it has options, and as they have it then."""

import pytest

from nfold.verbs.options.forked import are_forked

NOTHING = {"debug": None, "emulate": None, "on": None, "listen": None}


@pytest.mark.parametrize(
    ("given", "forked"),
    [
        ({}, True),
        ({"on": "here"}, True),
        ({"on": "mpi"}, False),
        ({"listen": "127.0.0.1"}, False),
        ({"debug": True}, False),
        ({"emulate": "c.toml"}, False),
    ],
    ids=str,
)
def test_ranks_of_this_machine_itself_are_forked(given, forked):
    assert are_forked(**NOTHING | given) == forked
