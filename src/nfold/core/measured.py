"""What a program is and costs on the machine that measured it."""

from dataclasses import dataclass

from nfold.core.cluster import Node
from nfold.core.graph import ModelGraph
from nfold.core.profile import Profile


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one program costs on one machine: its graph, a profile for each number of threads, and the machine."""

    graph: ModelGraph
    profiles: dict[int, Profile]
    """By the number of threads."""
    node: Node
    """The machine."""
