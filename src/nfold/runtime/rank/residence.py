"""The training data of one node: what lives there, which numbers its samples have, and those that come from others."""

import os
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Subset

from nfold.core.residency import Spans
from nfold.errors import ProgramError
from nfold.node_data import LocalData, local_data, on_node
from nfold.program import Program
from nfold.runtime.control.channel import Message
from nfold.runtime.data.loaded_program import load_dataset
from nfold.runtime.data.ordering import check_no_sampler
from nfold.runtime.samples.resident_dataset import ResidentDataset
from nfold.runtime.samples.sample_store import SampleStore
from nfold.runtime.samples.store_folder import open_store, temporary_store


def load_train(program: Program, order: Message) -> tuple[Any, LocalData | None]:
    """Build the training data of this node, and say what told that they live here; None: all nodes have all.

    Args:
        program: as it is written, with its seed.
        order: to load it; says which samples live on this node of an emulated cluster, if any do on purpose.

    Raises:
        ProgramError: as `load_dataset` does, the program has a sampler, or the cluster says that there are more or
            fewer samples than there are.
    """
    with on_node(order["node"]):
        if order["lives"] is not None:
            if isinstance(program.train_data, LocalData):
                raise ProgramError(
                    "both nfold.local_data and `samples` of the emulated cluster say what lives on a node. Leave out "
                    "`samples`, or let train_data build all data."
                )
            source = _part_of(load_dataset(program.train_data, "train_data", program.seed), order["lives"])
        elif isinstance(program.train_data, LocalData):
            source = program.train_data
        else:
            return load_dataset(program.train_data, "train_data", program.seed), None
        check_no_sampler(program)
        return load_dataset(source, "train_data", program.seed, may_be_empty=True), source


def _part_of(dataset: Any, lives: Mapping[str, int]) -> LocalData:
    if len(dataset) != lives["total"]:
        raise ProgramError(
            f"train_data() has {len(dataset)} samples, and the nodes of the emulated cluster hold {lives['total']} "
            "together. Make both agree: change `samples` of its [[node]]s."
        )
    part = range(lives["first"], lives["first"] + lives["count"])
    source = local_data(lambda _: Subset(dataset, part), pinned=lives["pinned"])
    source.part = part.start
    return source


def resident_of(base: Any, node: str, order: Message) -> ResidentDataset:
    """Return the samples of this node by their numbers in the whole data, with a place for those that come.

    Args:
        base: what lives here.
        node: this one.
        order: to reside.

    Raises:
        ClusterError: there is no place.
    """
    if not order["is_kept"]:
        return ResidentDataset(base, order["first"], order["total"], temporary_store(order["most_bytes"]))
    environment = os.environ if order["folder"] is None else {**os.environ, "NFOLD_DATA": order["folder"]}
    store = open_store(order["key"], node, order["most_bytes"], environment)
    keep_brought(store, order)
    return ResidentDataset(base, order["first"], order["total"], store)


def keep_brought(store: SampleStore, order: Message) -> None:
    """Let a store keep what nodes have brought to the run, as an order tells.

    Raises:
        ClusterError: it cannot be written.
    """
    store.keep_brought(order["num_begun"], [(first, end, digest) for first, end, digest in order["brought"]])


def samples_in(dataset: Any, spans: Spans) -> "Subset[Any]":
    """Return samples of the whole data as a data set, for a node that had none."""
    return Subset(dataset, [number for first, end in spans for number in range(first, end)])
