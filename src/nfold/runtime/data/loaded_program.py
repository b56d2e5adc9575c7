"""What a rank checks and tells of a program that it has just loaded: device, data, first weights and first pass."""

import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from nfold.capture.batches.joining import Collate
from nfold.capture.batches.tree import strided_parts, tensors_of
from nfold.capture.computing.random import LOCK, CellRandom, RandomState
from nfold.capture.example_batches import program_batches
from nfold.capture.optimizers.state_scope import plain_settings
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.program.building import build_model, set_to_train
from nfold.capture.program.module_outputs import outputs_and_gradients
from nfold.core import codec
from nfold.errors import ProgramError
from nfold.program import TEST_LOSS, Program, describe
from nfold.runtime.data.ordering import orders_to_compare
from nfold.runtime.data.sample_reader import ReadPart, Which, check_item, join_seeded, read_seeded, read_undrawn
from nfold.runtime.data.steady_items import check_items
from nfold.runtime.data.unsuited_data import what_to_hand_over

DATA: tuple[Which, ...] = ("train_data", "test_data")
_HOW = frozenset({"capturable", "differentiable", "foreach", "fused"})
"""Hyper-parameters that say how an optimizer computes, and not what."""
_BEFORE_ALL_STEPS = -(1 << 62)
"""A step of no epoch."""


def find_device(wanted: str, local_rank: int) -> torch.device:
    """Return the device on which a rank computes.

    Raises:
        ProgramError: there is no such device.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ProgramError("--device cuda: this machine's torch sees no CUDA device. Use --device cpu.")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def load_dataset(make: Callable[[], Any], what: Which, seed: int, *, may_be_empty: bool = False) -> Any:
    """Build a dataset and check that it can be indexed. What it draws is the same on all ranks.

    Args:
        make: the program's function.
        what: its name. Each draws other numbers, so that no test data are a copy of what is trained on.
        seed: of the program.
        may_be_empty: since they live on nodes, and none lives on this one.

    Raises:
        ProgramError: it raised, is empty or is no map-style dataset.
    """
    random = CellRandom(seed)
    random.enter(_BEFORE_ALL_STEPS, DATA.index(what))
    with LOCK:
        random.seed_everything(0)
        try:
            dataset = make()
        except Exception as error:
            raise ProgramError(f"{what}() raised {describe(error)}{_where_sought(error)}") from error
    if advice := what_to_hand_over(dataset, what):
        raise ProgramError(f"{what}() returned {advice}")
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ProgramError(f"{what}() must return a map-style dataset (with len and []), got {type(dataset).__name__}")
    if len(dataset) == 0 and not may_be_empty:
        raise ProgramError(f"{what}() returned an empty dataset, with 0 samples. Check its path and filters.")
    return dataset


def _where_sought(error: Exception) -> str:
    """Say where a file was looked for that is not there, if its path does not say so."""
    path = error.filename if isinstance(error, FileNotFoundError) else None
    if not isinstance(path, str) or os.path.isabs(path):
        return ""
    return f". Its path begins at {os.getcwd()}, where nfold was started"


def facts_of(program: Program, datasets: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the coordinator needs to know of a program, as JSON values.

    Args:
        program: as it will be trained.
        datasets: `train`, and `test` if there is one.

    Raises:
        ProgramError: items or their order depend on what was read before.
    """
    orders = orders_to_compare(program, datasets["train"])
    items = item_checksums(datasets["train"], program.seed, program.collate)
    _check_items(program, datasets["train"], "train_data", items)
    if "test" in datasets:
        own = item_checksums(datasets["test"], program.seed, program.collate)
        _check_items(program, datasets["test"], "test_data", own)
    model = build_model(program, torch.device("cpu"))
    weights, outputs = weights_checksums(model), first_pass(program, model, datasets["train"])
    stepping = _stepping_facts(program, model)
    return {
        "num_samples": len(datasets["train"]) if orders is None else orders["0"][0],
        "orders": orders,
        "has_collate": program.collate is not None,
        "has_test": "test" in datasets,
        "has_metrics": bool(program.metrics),
        "set_to_train": list(set_to_train(model)),
        "metrics": [TEST_LOSS, *program.metrics],
        "batch_size": program.batch_size,
        "seed": program.seed,
        "epochs": program.epochs,
        "chunks": program.chunks,
        "loaders": program.loaders,
        "has_scheduler": program.scheduler is not None,
        "clip_norm": program.clip_norm,
        "items": items,
        "averages": codec.encode(program.averages) if program.averages else None,
        "weights": weights,
        "first_pass": outputs,
        "stepping": stepping,
    }


def _stepping_facts(program: Program, model: torch.nn.Module) -> dict[str, Any] | None:
    """Return what optimizer and schedule are, and their hyper-parameters; None: the capture says why there are none."""
    with LOCK:
        before = RandomState()
        try:
            weights = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
            stepper = Stepping.of(program).build(weights)
            groups = [plain_settings(group) for group in stepper.optimizer.param_groups]
        except Exception:
            return None
        finally:
            before.restore()
    return {
        "optimizer": type(stepper.optimizer).__name__,
        "groups": [{key: _json_of(each) for key, each in group.items() if key not in _HOW} for group in groups],
        "scheduler": None if stepper.scheduler is None else type(stepper.scheduler).__name__,
    }


def _json_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json_of(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def item_checksums(dataset: Any, seed: int, collate: Collate | None = None) -> dict[str, int | None]:
    """Return the checksums of a few items by their index, so that ranks can be compared cheaply; a few readings.

    What an item draws is seeded as in the first epoch. None: it cannot be read here; who trains with it will say so.
    """
    return {str(index): _item_checksum(dataset, index, seed, collate) for index in probed_items(len(dataset))}


def _check_items(program: Program, dataset: Any, what: Which, found: Mapping[str, int | None]) -> None:
    def read(index: int) -> int | None:
        return _item_checksum(dataset, index, program.seed, program.collate)

    known = {int(index): each for index, each in found.items()}
    random = CellRandom(program.seed)

    def kept(index: int) -> None:
        try:
            read_seeded(random, dataset, 0, index)
        except ProgramError:
            return  # who trains with it will say so
        check_item(random, dataset, program.collate, index, ReadPart([index], 0, 0, 0), what)

    with LOCK:  # ranks may be threads, and share globals
        readable = [index for index, each in known.items() if each is not None]
        draws = read_undrawn(dataset, readable, what) is None
        check_items(dataset, program.collate, read, known, kept, what, draws=draws)


def probed_items(num_samples: int) -> list[int]:
    """Return which items are compared: the first, one in the middle, the last; none of no data."""
    return sorted({0, num_samples // 2, num_samples - 1}) if num_samples else []


def _item_checksum(dataset: Any, index: int, seed: int, collate: Collate | None) -> int | None:
    try:
        random = CellRandom(seed)
        items = [read_seeded(random, dataset, 0, index)]
        pair = join_seeded(random, items, [index], collate, step=0, chunk=0)
    except ProgramError:
        return None
    return _checksum(tensors_of(pair))


def weights_checksums(model: torch.nn.Module) -> dict[str, int]:
    """Return the checksum of each weight and buffer by its name, so that ranks can be compared cheaply."""
    weights = model.state_dict().items()
    return {name: _checksum([tensor]) for name, tensor in weights if isinstance(tensor, torch.Tensor)}


def first_pass(program: Program, model: torch.nn.Module, dataset: Any) -> dict[str, Any] | None:
    """Return what modules and the loss make of two samples in a first pass, so that ranks can be compared cheaply.

    What they draw is seeded as in the first step. None: it raised, which is told when the program is captured.
    """
    random = CellRandom(program.seed)
    with LOCK, torch.enable_grad():
        before = RandomState()
        try:
            batch = program_batches(program, dataset).batch(2)
            random.enter(0, 0)
            random.seed_everything(0)
            checksum = _checksum(tensors_of(batch))
            outputs, gradients = outputs_and_gradients(model, program.loss, batch)
        except Exception:
            return None
        finally:
            before.restore()
    return {
        "samples": checksum,
        "outputs": [codec.encode(each) for each in outputs],
        "gradients": [codec.encode(each) for each in gradients],
    }


def _checksum(tensors: Iterable[torch.Tensor]) -> int:
    total = 0
    for tensor in (part for each in tensors for part in strided_parts(each.detach())):
        if tensor.numel():
            total = zlib.crc32(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, total)
    return total
