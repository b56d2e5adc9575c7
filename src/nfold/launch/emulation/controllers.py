"""Which controllers a group of version 2 hands down to those in it, and how the root gets back what it had.

Emulations need controllers that the root may not hand down yet. What they turn on there is written down beside their
owners, so that the last of them turns it off again, also after others were killed.

    /run/nfold/controllers       `cpu memory`: turned on by emulations; absent: nothing
"""

import errno
from collections.abc import Sequence
from pathlib import Path

from nfold.errors import ClusterError

_CONTROL = "cgroup.subtree_control"


def enable_controllers(folder: Path, names: Sequence[str], memo: Path | None = None) -> None:
    """Let the groups in a folder have controllers.

    Args:
        folder: of the group.
        names: of the controllers.
        memo: file that remembers what was not on before; None: the group is ours and goes with us.

    Raises:
        OSError: the kernel refuses.
    """
    control = folder / _CONTROL
    present = control.read_text(encoding="utf-8").split() if control.exists() else []
    missing = [name for name in names if name not in present]
    if not missing:
        return
    if memo is not None:  # first: who is killed in between leaves a note too many, which turns nothing off
        noted = memo.read_text(encoding="utf-8").split() if memo.exists() else ()
        memo.write_text(" ".join(sorted({*missing, *noted})), encoding="utf-8")
    control.write_text(" ".join(f"+{name}" for name in missing), encoding="utf-8")


def put_back(folder: Path, memo: Path) -> None:
    """Turn off again what emulations have turned on; nobody may be making one meanwhile.

    What other groups hand on by now is theirs and stays: the kernel refuses to turn it off.

    Raises:
        ClusterError: the kernel refuses for another reason.
    """
    if not memo.exists():
        return
    for name in memo.read_text(encoding="utf-8").split():
        try:
            (folder / _CONTROL).write_text(f"-{name}", encoding="utf-8")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise ClusterError(
                    f"cannot turn the controller {name} of {folder} off again: {error.strerror}. "
                    f"Write -{name} into {folder / _CONTROL} yourself."
                ) from error
    memo.unlink()
