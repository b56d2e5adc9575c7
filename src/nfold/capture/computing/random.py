"""Random numbers that depend on what is computed, never on where: one seed for each draw of each cell."""

import contextlib
import random as python_random
from collections.abc import Iterator

import numpy as np
import torch

from nfold.capture.computing.turn_lock import TurnLock

LOCK = TurnLock()
"""Computing and reading samples share torch's generator, and so do ranks that are threads of one process: seeding and
drawing happen under this lock."""

_MASK = (1 << 64) - 1


class CellRandom:
    """Seeds torch's generators from (run seed, step, chunk, draw). Not shared between ranks."""

    def __init__(self, seed: int) -> None:
        self._run = _mix(seed & _MASK)
        self._cell = self._run

    def enter(self, step: int, chunk: int) -> None:
        """Set the step and chunk that the next draws belong to."""
        self._cell = _mix(_mix(self._run + step & _MASK) + chunk & _MASK)

    def seed(self, draw: int) -> None:
        """Seed the generators for one draw. About 2 us."""
        _seed_torch(self._draw_seed(draw))

    def seed_everything(self, draw: int) -> None:
        """Seed Python's and numpy's generators as well, for models that draw from them. About 15 us."""
        seed = self._draw_seed(draw)
        _seed_torch(seed)
        python_random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)

    def _draw_seed(self, draw: int) -> int:
        return _mix(self._cell + draw & _MASK) >> 1


class TorchState:
    """The state of torch's generator at one moment. It takes a hundredth of the time that all generators do."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()

    def torch_moved(self) -> bool:
        """Whether torch has drawn since."""
        return not torch.equal(self._torch, torch.get_rng_state())

    def others_moved(self) -> bool:
        """Tell that nobody asks for others here."""
        return False


class RandomState(TorchState):
    """The states of the process's generators at one moment, to be put back later."""

    def __init__(self) -> None:
        super().__init__()
        self._cuda = torch.cuda.get_rng_state_all() if _has_cuda() else []
        self._python = python_random.getstate()
        self._numpy = np.random.get_state()

    def restore(self) -> None:
        """Put every generator back."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        python_random.setstate(self._python)
        np.random.set_state(self._numpy)

    def moved(self) -> bool:
        """Whether any generator has drawn since. About 40 us."""
        return self.torch_moved() or self.others_moved()

    def others_moved(self) -> bool:
        """Whether Python's or numpy's generator has drawn since."""
        _, key, *rest = self._numpy
        _, key_now, *rest_now = np.random.get_state()
        return rest_now != rest or not np.array_equal(key_now, key) or python_random.getstate() != self._python


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep other threads, such as ranks, from the generators for a block, and put the generators back at its end."""
    with LOCK:
        before = RandomState()
        try:
            yield
        finally:
            before.restore()


def seed_all(seed: int) -> None:
    """Seed the generators of torch, Python and numpy."""
    if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)  # devices that are initialised later included
    else:
        # The same, but for notes to such devices, each with a formatted stack: 5 ms, a hundred times in a capture.
        torch.default_generator.manual_seed(seed)
    python_random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def _seed_torch(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if _has_cuda():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)


def _has_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _mix(value: int) -> int:
    """Scatter 64 bits: the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    value = value + 0x9E3779B97F4A7C15 & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
