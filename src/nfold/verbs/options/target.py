"""Reads what hosts a run asks for: `ssh:hosts.txt`, `slurm:short`, `yarn:http://rm:8088` .."""

from dataclasses import dataclass

from nfold.core.options.whole import read_digits
from nfold.errors import PlanError, clipped

HERE = "here"
BY_HAND = "hand"
"""Without `--on`: hosts that join by themselves."""
LAST_PORT = 65535
_NEEDS_WHERE = {"ssh": "a hosts file, as in ssh:hosts.txt", "yarn": "the ResourceManager, as in yarn:http://rm:8088"}
_KINDS = ("ssh", "slurm", "mpi", "ray", "yarn", "local")
_WITHOUT_WHERE = ("mpi", "local", HERE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The manager that brings hosts, and where it is to look for them."""

    kind: str
    where: str = ""
    """A file, a partition, an address; empty: the usual one."""

    @property
    def told(self) -> str:
        """The target as the user typed it."""
        if self.kind == BY_HAND:
            return f"--listen {self.where}"
        return f"--on {self.kind}:{self.where}" if self.where else f"--on {self.kind}"


def read_target(on: str | None, listen: str | None) -> Target | None:
    """Read `--on`, and `--listen` where nothing else brings hosts; None: all ranks run on this machine.

    Raises:
        PlanError: there is no such kind, or it needs to know where.
    """
    if listen is not None:
        read_listen(listen)
    if on is None and listen is not None:
        return Target(kind=BY_HAND, where=listen)
    if on is None or on == HERE:
        return None
    kind, _, where = on.partition(":")
    if kind not in _KINDS:
        raise PlanError(f"--on {on}: there is no kind of hosts {kind!r}. Use one of: {', '.join((*_KINDS, HERE))}.")
    if kind in _NEEDS_WHERE and not where:
        raise PlanError(f"--on {on} needs {_NEEDS_WHERE[kind]}.")
    if kind in _WITHOUT_WHERE and where:
        raise PlanError(f"--on {on}: nothing stands behind {kind}. Leave out :{where}.")
    return Target(kind=kind, where=where)


def read_listen(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`, or `HOST` for any free port.

    Raises:
        PlanError: it is something else.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "0"
    number = read_digits(port)
    if not host or number is None or number > LAST_PORT:
        raise PlanError(
            f"--listen {clipped(text)}: it must be an address of this machine and a port, as in 0.0.0.0:7000"
        )
    return host, number
