"""Numbers of hosts as they are typed."""

import pytest

from nfold.core.options.host_range import MOST_HOSTS, HostRange, read_nodes, read_range
from nfold.errors import PlanError

TOO_MANY = ("4097", "99999999999999999999", "9" * 5000)


@pytest.mark.parametrize("number", TOO_MANY, ids=len)
def test_more_hosts_than_a_run_may_have_are_refused(number):
    most = rf"^--nodes .{{1,70}}: a run has at most {MOST_HOSTS} hosts\. Ask for fewer\.$"
    with pytest.raises(PlanError, match=most):
        read_range(f"1:{number}")
    with pytest.raises(PlanError, match=most):
        read_nodes(number)


def test_digits_are_those_from_0_to_9():
    assert read_range("2:4096") == HostRange(2, MOST_HOSTS)
    assert read_nodes("8") == 8
    for text in ("٢:٣", "2²:3", "3:2", "0:1", ":", "1:-2"):
        with pytest.raises(PlanError, match="it must be a number of hosts"):
            read_range(text)
    with pytest.raises(PlanError, match="it must be a whole number"):
        read_nodes("٢")
