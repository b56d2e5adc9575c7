"""What a rank checks of a program that it has just loaded: its device, its data, and its first weights."""

import zlib
from collections.abc import Callable
from typing import Any

import torch

from nfold.errors import ProgramError
from nfold.program import describe


def find_device(wanted: str, local_rank: int) -> torch.device:
    """Return where a rank computes.

    Raises:
        ProgramError: there is no such device.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ProgramError("--device cuda: this machine's torch sees no CUDA device. Use --device cpu.")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def load_dataset(make: Callable[[], Any], what: str) -> Any:
    """Build a dataset and check that it can be indexed.

    Raises:
        ProgramError: it raised, is empty or is no map-style dataset.
    """
    try:
        dataset = make()
    except Exception as error:
        raise ProgramError(f"{what}() raised {describe(error)}") from error
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ProgramError(f"{what}() must return a map-style dataset (with len and []), got {type(dataset).__name__}")
    if len(dataset) == 0:
        raise ProgramError(f"{what}() returned an empty dataset, with 0 samples. Check its path and filters.")
    return dataset


def weights_checksum(model: torch.nn.Module) -> int:
    """Add up the bytes of all weights, so that ranks can be compared cheaply."""
    total = 0
    for tensor in model.state_dict().values():
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            total = zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, total)
    return total
