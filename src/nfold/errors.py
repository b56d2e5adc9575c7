"""Every error that nfold raises on purpose.

    NfoldError
     ├── ProgramError     the user's program cannot be trained as written   (also a ValueError)
     ├── ClusterError     the machines cannot do what was asked             (also a ValueError)
     ├── PlanError        no placement fits, or an option makes no sense    (also a ValueError)
     ├── RunError         a run could not go on
     │    ├── WorkerLost        a rank died, or its user code raised
     │    ├── NonFiniteLoss     the loss became NaN or infinite
     │    ├── CheckpointError   a checkpoint could not be written or read
     │    └── TransportError    bytes between two ranks could not be moved
     │         └── PeerLost     the other side of a connection is gone
     └── InternalError    a broken promise of nfold itself: please report it

A message says what happened, with which numbers, where, and what to do about it, on one line.
"""

CUT = ".. (the log has the rest)"
_MOST_CHARACTERS = 500
_MOST_TYPED = 40


def one_line(text: str) -> str:
    """Fold a text of others, which may be a page long, into a part of a message."""
    folded = " ".join(text.split())
    return folded if len(folded) <= _MOST_CHARACTERS else f"{folded[:_MOST_CHARACTERS]} {CUT}"


def clipped(text: str) -> str:
    """Return what somebody typed for a message, which a long one would fill: its start, and how long it is."""
    return text if len(text) <= _MOST_TYPED else f"{text[:_MOST_TYPED]}.. ({len(text)} characters)"


class NfoldError(Exception):
    """Anything that nfold raises on purpose.

    Attributes:
        recurs: whether it would happen again at the same step, since the program itself raised it.
        leaves_too_few: whether hosts that come and go are lost, and too few are left to train or to wait for others.
    """

    recurs: bool = False
    leaves_too_few: bool = False


class ProgramError(NfoldError, ValueError):
    """The user's program cannot be trained as written."""


class ClusterError(NfoldError, ValueError):
    """The machines cannot do what was asked."""


class PlanError(NfoldError, ValueError):
    """No placement fits, or an option makes no sense."""


class RunError(NfoldError):
    """A run could not go on."""


class WorkerLost(RunError):
    """A rank died, or the user's code raised on it."""


class NonFiniteLoss(RunError):
    """The loss became NaN or infinite."""


class CheckpointError(RunError):
    """A checkpoint could not be written or read."""


class TransportError(RunError):
    """Bytes between two ranks could not be moved."""


class PeerLost(TransportError):
    """The other side of a connection is gone.

    Attributes:
        peer: rank of the lost side.
    """

    def __init__(self, message: str, peer: int) -> None:
        super().__init__(message)
        self.peer = peer


class Terminated(KeyboardInterrupt):
    """SIGTERM or a lack of hosts ended a run in order; the message tells how to go on."""


class InternalError(NfoldError):
    """A broken promise of nfold itself: please report it."""
