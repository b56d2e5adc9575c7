"""What a run leaves in its folder when something goes wrong."""

import pytest

from nfold.errors import CheckpointError
from nfold.verbs.folder import RunFolder


class CutOff:
    """A checkpoint that ends in the middle."""

    def model(self):
        yield b"half"
        raise CheckpointError("it was cut off")


def test_half_a_model_does_not_stay(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(CheckpointError, match="it was cut off"):
        folder.ensure_model(CutOff())
    assert not list(tmp_path.iterdir())
