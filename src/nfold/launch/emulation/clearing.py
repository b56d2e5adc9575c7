"""Removes what an emulation is made of, whoever made it: its number is all that need be known."""

from pathlib import Path

from nfold.launch.emulation.cgroups import MOUNTS, Groups, find_hierarchy
from nfold.launch.emulation.controllers import put_back
from nfold.launch.emulation.ip_and_tc import perform
from nfold.launch.emulation.namespaces import Batch, is_namespace_of, switch_namespace
from nfold.launch.emulation.owners import STATE

NAMESPACES = Path("/run/netns")
MEMO = STATE / "controllers"


def clear(number: int) -> None:
    """Remove all namespaces and groups of an emulation, whatever of it there is, and end what runs in them.

    Raises:
        ClusterError: some processes will not go, or the kernel refuses.
    """
    groups_of(number).remove()
    names = sorted(path.name for path in NAMESPACES.iterdir()) if NAMESPACES.is_dir() else []
    lines = tuple(f"netns delete {name}" for name in names if is_namespace_of(number, name))
    if lines:
        perform(Batch(tool="ip", namespace=None, lines=lines))


def groups_of(number: int) -> Groups:
    """Return an emulation's control groups, made or not.

    Raises:
        ClusterError: this machine has not mounted the controllers.
    """
    return Groups(find_hierarchy(MOUNTS.read_text(encoding="utf-8")), switch_namespace(number), MEMO)


def restore_machine() -> None:
    """Undo what emulations have changed of the machine itself, when none is left.

    Raises:
        ClusterError: the kernel refuses.
    """
    hierarchy = find_hierarchy(MOUNTS.read_text(encoding="utf-8"))
    if hierarchy.version == 2:
        put_back(hierarchy.folders[0], MEMO)
