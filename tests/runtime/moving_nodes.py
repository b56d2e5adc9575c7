"""Nodes that are threads of this process and move samples among them."""

from contextlib import contextmanager

from nfold.runtime.samples.mover import Mover
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.samples.resident_dataset import ResidentDataset
from nfold.runtime.samples.sample_store import SampleStore
from nfold.transport.implementations.in_memory import MemoryNetwork


class Nodes:
    """Nodes with data sets of their own, numbered one after another."""

    def __init__(self, folder, data_sets):
        self._folder, self._data_sets = folder, data_sets
        self.network = MemoryNetwork(len(data_sets))
        self.generation = 0
        self._open()

    def _open(self):
        self.transports = [
            self.network.connections(node).begin(self.generation, range(len(self._data_sets)))
            for node in range(len(self._data_sets))
        ]
        self.stores = [SampleStore(self._folder / str(node)) for node in range(len(self._data_sets))]
        total, first, self.data = sum(map(len, self._data_sets)), 0, []
        for base, store in zip(self._data_sets, self.stores, strict=True):
            self.data.append(ResidentDataset(base, first, total, store))
            first += len(base)

    def begin_anew(self):
        """Begin the next generation, with the stores as they are."""
        for store in self.stores:
            store.close()
        self.generation += 1
        self._open()

    def movers(self, moves, moving=0, bytes_per_s=None, gate=None, **options):
        members = range(len(self._data_sets))
        pairs = zip(self.transports, self.data, strict=True)
        return [
            Mover(transport, members, moving, moves, data, pacer=Pacer(bytes_per_s, gate=gate), **options)
            for transport, data in pairs
        ]

    def move(self, moves, moving=0, **options):
        return [mover.wait() for mover in self.movers(moves, moving, **options)]

    def close(self):
        self.network.close()
        for store in self.stores:
            store.close()


@contextmanager
def nodes_with(folder, *data_sets):
    nodes = Nodes(folder, data_sets)
    try:
        yield nodes
    finally:
        nodes.close()
