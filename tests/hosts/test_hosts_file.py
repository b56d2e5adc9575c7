"""What a hosts file may say."""

import pytest

from nfold.errors import ClusterError
from nfold.hosts.managers.hosts_file import ListedHost, parse_hosts, read_hosts


def test_hosts_with_and_without_slots():
    text = "# our boards\npi-1 slots=4\n\nroot@10.0.0.7   # the fast one\npi-2 slots=1 max_slots=2\n"

    assert parse_hosts(text, "hosts.txt") == (
        ListedHost(name="pi-1", slots=4),
        ListedHost(name="root@10.0.0.7"),
        ListedHost(name="pi-2", slots=1),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pi-1\npi-2 slot=4\n", r"hosts.txt, line 2: 'slot=4' says nothing here"),
        ("pi-1 slots=0", "line 1: 'slots=0'"),
        pytest.param("pi-1 slots=" + "1" * 5000, "line 1: 'slots=1111", id="slots, 5000 digits"),
        ("pi-1 slots=many", "line 1: 'slots=many'"),
        ("-oProxyCommand=x", "line 1: '-oProxyCommand=x' is no name of a host"),
        ("pi-1\n\npi-1\n", "line 3: pi-1 stands in line 1 already"),
        ("# nobody\n", "names no host"),
    ],
)
def test_bad_lines_are_named(text, told):
    with pytest.raises(ClusterError, match=told):
        parse_hosts(text, "hosts.txt")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ClusterError, match=r"cannot read the hosts file .*: No such file"):
        read_hosts(tmp_path / "none.txt")
