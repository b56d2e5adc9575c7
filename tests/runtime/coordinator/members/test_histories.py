"""Why hosts came and went, as the ledger tells it."""

from nfold.core.members import Turnover
from nfold.runtime.coordinator.members.histories import NO_WORK, Histories


def test_a_host_that_is_back_before_its_loss_is_told_leaves_later_for_another_reason():
    histories = Histories()
    histories.came("n-1", "join n-1@1s", 1.0)
    histories.gone("n-1", "was killed")
    assert histories.told(Turnover(lost=("n-1",))).why == {"n-1": "was killed"}
    assert histories.told(Turnover(joined=("n-1",))).why == {"n-1": "join n-1@1s"}
    histories.gone("n-1", "leave n-1@2s")
    assert histories.told(Turnover(left=("n-1",))).why == {"n-1": "leave n-1@2s"}
    assert histories.told(Turnover(left=("n-1",))).why == {"n-1": NO_WORK}


def test_a_host_that_joins_anew_once_its_loss_is_known_was_lost_all_the_same():
    histories = Histories()
    histories.gone("n-1", "was killed")
    histories.came("n-1", "its rank was lost, and it was not", 1.0)
    assert histories.told(Turnover(lost=("n-1",))).why == {"n-1": "was killed"}
