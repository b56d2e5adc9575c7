"""Who holds which samples: every sample lives on one node."""

import pytest

from nfold.core import codec
from nfold.core.residency import Holding, Residency
from nfold.errors import ClusterError


def residency(*holdings):
    return Residency(holdings=holdings, sample_bytes=10.0)


def test_samples_may_be_listed():
    found = residency(
        Holding(node="a", num_samples=5, spans=((0, 3), (7, 9))), Holding(node="b", num_samples=4, spans=((3, 7),))
    )
    assert found.num_samples == 9
    assert codec.loads(Residency, codec.dumps(found)) == found


@pytest.mark.parametrize(
    ("holdings", "said"),
    [
        (
            [Holding(node="a", num_samples=5, spans=((0, 5),)), Holding(node="b", num_samples=3, spans=((4, 7),))],
            "a and b both claim sample 4: an epoch would visit it twice",
        ),
        ([Holding(node="a", num_samples=4, spans=((0, 2), (1, 3)))], "a and a both claim sample 1"),
        ([Holding(node="a", num_samples=5, spans=((0, 4),))], "a holds 5 samples and lists 4"),
        ([Holding(node="a", num_samples=5, spans=((5, 0),))], "a claims the samples from 5 to 0: that is no range"),
        ([Holding(node="a", num_samples=5, num_pinned=6)], "a pins 6 samples and holds 5"),
        ([Holding(node="a", num_samples=5, most_samples=4)], "a holds 5 samples, and its storage has room for 4"),
    ],
)
def test_what_cannot_be_is_refused(holdings, said):
    with pytest.raises(ClusterError, match=said):
        residency(*holdings)
