"""A rank's sign of life, from a thread of its own: a long step is no silence, a process that is stopped is."""

import threading

from nfold.runtime.channel import ALIVE, Channel, ChannelClosed

BEAT_S = 2.0


def keep_beating(channel: Channel, period_s: float = BEAT_S) -> threading.Thread:
    """Show on a channel that this process lives, until the channel is closed."""
    thread = threading.Thread(target=_beat, args=(channel, period_s), name="nfold-heartbeat", daemon=True)
    thread.start()
    return thread


def _beat(channel: Channel, period_s: float) -> None:
    never = threading.Event()
    while not never.wait(period_s):
        try:
            channel.send(ALIVE)
        except ChannelClosed:
            return
