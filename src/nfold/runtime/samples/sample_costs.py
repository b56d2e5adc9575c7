"""Measures what a sample that moves costs a node's processor: to send it, to keep it, and to read it in each epoch."""

import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from nfold.errors import ProgramError
from nfold.planning.residency.node_inventory import SampleCosts
from nfold.runtime.data.sample_reader import read_undrawn
from nfold.runtime.samples.resident_dataset import ResidentDataset, records_of
from nfold.runtime.samples.sample_store import SampleStore

Clock = Callable[[], float]

_ROUNDS = 3
_MOST_SAMPLES, _MOST_BYTES, _ROUND_S = 512, 4 << 20, 0.05
"""Of a round: processor seconds of reading them, too. Enough not to find all of them in a cache."""


def sample_costs(base: Any, clock: Clock = time.thread_time) -> SampleCosts | None:
    """Return what samples of a node cost it; None: it has none that could be sent.

    About 0.1 s of a whole core, and a few times as much as reading takes where that takes long.

    Args:
        base: what lives here.
        clock: gives processor seconds of this thread.
    """
    if not len(base):
        return None
    try:
        size = len(records_of(base, [0])[0].data)
        begin_s = clock()
        records_of(base, [0])  # what is read first may take much longer
    except ProgramError:
        return None
    took_s = max(clock() - begin_s, 1e-6)
    count = max(1, int(min(len(base), _MOST_SAMPLES, _MOST_BYTES / max(1, size), _ROUND_S / took_s)))
    rounds = [_round(base, list(range(count)), clock) for _ in range(_ROUNDS)]
    return SampleCosts(
        send_s=median(each.send_s for each in rounds),
        keep_s=median(each.keep_s for each in rounds),
        read_s=median(each.read_s for each in rounds),
    )


def _round(base: Any, indices: list[int], clock: Clock) -> SampleCosts:
    """Send, keep and read some samples."""
    with tempfile.TemporaryDirectory(prefix="nfold-costs-") as folder:
        store = SampleStore(Path(folder))
        times_s = [clock()]
        records = records_of(base, indices)
        times_s.append(clock())
        for index, record in zip(indices, records, strict=True):
            store.add(index, record)
        times_s.append(clock())
        if not records[0].name:  # a file is read as it was where it came from
            for dataset in (base, ResidentDataset((), 0, len(base), store)):
                read_undrawn(dataset, indices)
                times_s.append(clock())
        store.close()
    send_s, keep_s, *read_s = (later - one for one, later in pairwise(times_s))
    own_s, come_s = read_s or (0.0, 0.0)
    count = len(indices)
    return SampleCosts(send_s=send_s / count, keep_s=keep_s / count, read_s=max(0.0, come_s - own_s) / count)
