"""What a rank tells the coordinator of itself when it cannot go on.

Users read what `runtime/failures/first_cause.py` makes of it.
"""

import traceback
from pathlib import Path

from nfold.errors import NfoldError, PeerLost, TransportError
from nfold.program import describe
from nfold.runtime.control.channel import Message


def failed(error: BaseException, script: Path | None, *, doing: str, step: int | None, reached: int) -> Message:
    """Return what tells the coordinator why a rank failed; another rank's loss is an echo, not a cause.

    Args:
        error: what was raised.
        script: the user's, whose line is named; None: there is none.
        doing: the order that was being done.
        step: under way; None: no step was.
        reached: steps that the rank knows to be done.
    """
    text = str(error) if isinstance(error, NfoldError) else describe(error, script)
    return {
        "is": "failed",
        "kind": type(error).__name__,
        "text": ". ".join([text.rstrip("."), *getattr(error, "__notes__", ())]),
        "doing": doing,
        "step": step,
        "reached": reached,
        "is_echo": isinstance(error, (PeerLost, TransportError)),
        "peer": getattr(error, "peer", None),
        "traceback": "".join(traceback.format_exception(error)),
    }
