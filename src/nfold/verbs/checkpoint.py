"""What a checkpoint says of itself, without torch: how far the run was, and whether the file is whole."""

import json

from nfold.errors import CheckpointError


def checkpoint_step(data: bytes) -> int:
    """Return after how many steps a checkpoint was taken, without reading its tensors.

    Raises:
        CheckpointError: these are not the bytes of a checkpoint.
    """
    if len(data) < 8:
        raise CheckpointError(f"the checkpoint is damaged: it has {len(data)} bytes")
    try:
        header_bytes = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + header_bytes])
        facts = json.loads(header.pop("__metadata__")["nfold"])
        whole_bytes = 8 + header_bytes + max((each["data_offsets"][1] for each in header.values()), default=0)
        if len(data) != whole_bytes:
            raise ValueError(f"it has {len(data)} of {whole_bytes} bytes")
        return int(facts["step"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint is damaged: {error}") from error
