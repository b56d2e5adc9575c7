"""What a program is and costs on the machine that measured it."""

from dataclasses import dataclass

from nfold.core.cluster import Node
from nfold.core.graph import ModelGraph
from nfold.core.profile import Profile


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Of one program on one machine."""

    graph: ModelGraph
    profiles: dict[int, Profile]
    """By the number of threads."""
    node: Node
    """The machine."""
