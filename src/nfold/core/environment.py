"""What a run ran on: enough to judge its figures elsewhere, or later."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The machine and the software of a run's coordinator, as it was when the run started."""

    started: str
    """When the run began: ISO 8601, UTC."""
    command: tuple[str, ...]
    """As it was typed."""
    system: str
    """Kernel and architecture."""
    processor: str
    """The maker's name for it; empty where the system does not say."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and the packages that results depend on."""
