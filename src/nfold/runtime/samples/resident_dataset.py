"""The samples of one node, by their numbers in the whole data: those that were here all along, and those that came."""

import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from nfold.core.text.units import count
from nfold.errors import ProgramError
from nfold.node_data import LocalFiles, Read
from nfold.runtime.data.sample_reader import read_undrawn
from nfold.runtime.samples.record import Record, item_of_bytes, item_to_bytes
from nfold.runtime.samples.sample_store import SampleStore

_UNKNOWN = -1


class ResidentDataset:
    """A map-style data set that has the length of the whole data and gives the samples of this node.

    It is what is trained on. What looks at a few first items, to capture or to time the program, looks at `base`.
    """

    def __init__(self, base: Any, first: int, total: int, store: SampleStore) -> None:
        """Args:
        base: what lives here: the user's data set, LocalFiles among them; may be empty.
        first: number of its first sample.
        total: samples on all nodes.
        store: for samples that come from others.
        """
        self.base, self.store = base, store
        self._first, self._total = first, total
        self._own = range(first, first + len(base))
        self._crcs = array("q", [_UNKNOWN]) * len(base)
        """Of samples that were read to be sent."""

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, number: int) -> Any:
        """Return a sample, once it has come.

        Raises:
            InternalError: it neither lives here nor is on its way.
        """
        if number in self._own:
            return self.base[number - self._first]
        self.store.wait(number)
        if self.store.name(number):
            return self._read_file(number)
        return item_of_bytes(self.store.bytes_of(number))

    def wait_for_samples(self, numbers: Iterable[int]) -> None:
        """Wait until samples are here. Readers do so before they take a lock that others need meanwhile.

        Raises:
            InternalError: one of them is not on its way.
            Exception: why no more come.
        """
        for number in numbers:
            if number not in self._own:
                self.store.wait(number)

    def makes_anew(self, number: int) -> bool:
        """Whether a sample is made of its bytes whenever it is read, so that nobody keeps what is given."""
        return number not in self._own and not self.store.name(number)

    def records(self, numbers: Sequence[int]) -> list[Record]:
        """Return samples as they are sent to others.

        Raises:
            ProgramError: one has changed since it was sent before, cannot be read, draws, or has no form as bytes.
            InternalError: one is not here.
        """
        own = [number - self._first for number in numbers if number in self._own]
        found = dict(zip(own, records_of(self.base, own), strict=True))
        for index, record in found.items():
            self._check_same(index, zlib.crc32(record.data))
        return [
            found[number - self._first]
            if number in self._own
            else Record(self.store.bytes_of(number), self.store.name(number))
            for number in numbers
        ]

    def _read_file(self, number: int) -> Any:
        read: Read | None = getattr(self.base, "read", None) if isinstance(self.base, LocalFiles) else None
        if read is None:
            raise ProgramError(
                f"sample {number} came as a file, and this node's data are {type(self.base).__name__}: let "
                "nfold.local_data name files on all nodes, or on none."
            )
        return read(self.store.path(number))

    def _check_same(self, index: int, crc: int) -> None:
        if self._crcs[index] not in (_UNKNOWN, crc):
            raise ProgramError(
                f"item {index} of train_data() is another one than when it was sent before (checksum {crc:08x}, it had "
                f"{self._crcs[index]:08x}). Samples that move must stay what they are. Begin anew once they do."
            )
        self._crcs[index] = crc


def records_of(base: Any, indices: Sequence[int]) -> list[Record]:
    """Return samples that live here as they are sent: files, or items of the user's data set.

    Raises:
        ProgramError: as for one of them.
    """
    if isinstance(base, LocalFiles):
        return [_file_record(base, index) for index in indices]
    return _item_records(base, list(indices))


def _file_record(files: LocalFiles, index: int) -> Record:
    """Return a file as it is sent.

    Raises:
        ProgramError: it is missing, or was written to since it was listed.
    """
    path = files.folder / files.names[index]
    files.check(index)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"the sample {path} cannot be read: {error.strerror}. Let nfold read it.") from error
    files.check(index)
    if len(data) != files.size(index):
        raise ProgramError(f"{path} gave {count(len(data), 'byte')}, and has {files.size(index)}: it is written to.")
    return Record(data, files.names[index])


def _item_records(dataset: Any, indices: list[int]) -> list[Record]:
    """Return items as they are sent; reading many at once costs a third of one by one.

    Raises:
        ProgramError: reading one raised, one draws random numbers, or has no form as bytes.
    """
    items = read_undrawn(dataset, indices) if indices else []
    if items is None:
        drawn = next((index for index in indices if read_undrawn(dataset, [index]) is None), indices[0])
        raise ProgramError(
            f"item {drawn} of train_data() draws random numbers, so sent to another node it would be the same in each "
            "epoch. Draw in Program(collate=...) or in forward; or let the files themselves travel: "
            "nfold.local_data(FOLDER, read=...); or keep all samples where they are: pinned=True."
        )
    return [
        Record(item_to_bytes(item, f"item {index} of train_data()")) for index, item in zip(indices, items, strict=True)
    ]
