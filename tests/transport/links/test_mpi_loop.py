"""What the thread that speaks MPI does where MPI fails; all else is tried with MPI itself."""

import pytest

from nfold.errors import ClusterError
from nfold.transport.links.mpi_loop import MpiLoop


class FailingMpi:
    """Fails in one call, and does nothing in others; it is module, world and request in one."""

    Exception = OSError
    THREAD_FUNNELED = 1

    def __init__(self, fails):
        self.fails, self.has_left = fails, False
        self.COMM_WORLD = self.Request = self

    def _do(self, name):
        if name == self.fails:
            raise OSError(f"{name} failed")

    def Is_initialized(self):
        return False

    def Init_thread(self, level):
        self._do("Init_thread")

    def Dup(self):
        self._do("Dup")
        return self

    def Ibcast(self, buffer, root):
        self._do("Ibcast")

    def Status(self):
        return self

    def Testsome(self, requests, statuses):
        self._do("Testsome")

    def Finalize(self):
        self.has_left = True


@pytest.mark.parametrize("fails", ["Init_thread", "Dup"])
def test_mpi_that_cannot_be_entered(fails):
    with pytest.raises(ClusterError, match=f"MPI cannot be entered: {fails} failed"):
        MpiLoop("mpi", FailingMpi(fails))


@pytest.mark.parametrize("fails", ["Ibcast", "Testsome"])
def test_mpi_that_fails_is_told_and_left(fails):
    mpi = FailingMpi(fails)
    loop = MpiLoop("mpi", mpi)

    with pytest.raises(ClusterError, match=f"MPI cannot tell all processes .*: {fails} failed"):
        loop.broadcast(b"all")
    loop.leave()
    assert mpi.has_left


def test_what_raises_in_the_thread_fails_all_that_is_under_way():
    mpi = FailingMpi("")
    loop = MpiLoop("mpi", mpi)
    mpi.Ibcast = lambda buffer, root: loop.call(lambda: 1 / 0)

    with pytest.raises(ClusterError, match="division by zero"):
        loop.broadcast(b"all")
    loop.leave()
    assert mpi.has_left
