"""Where something of a run shall listen."""

import pytest

from nfold.errors import PlanError
from nfold.verbs.options.addresses import read_address


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (9464, ("127.0.0.1", 9464)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("pi-1:80", ("pi-1", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_a_port_is_of_this_machine_alone_unless_an_address_stands_before_it(given, address):
    assert read_address(given, "--x") == address


@pytest.mark.parametrize("given", ["", "x", ":80", "host:", "80:", "-1", -1, 1.5, True])
def test_what_is_no_port_is_told(given):
    with pytest.raises(PlanError, match="must be a port, as in --x 9464, or HOST:PORT"):
        read_address(given, "--x")


def test_there_are_no_more_ports_than_that():
    with pytest.raises(PlanError, match=r"--x 65536: the last port is 65535\. Use 0 for any free one"):
        read_address(65536, "--x")
