"""How fast and how late bytes leave a device, as lines for `tc`. Pure.

A token bucket holds each direction of a link to its rate. Its bucket is small, so that a short message takes as long
as a long one per byte. Its queue holds all that TCP may have on its way, and the window that a node offers each of its
peers is what its link carries while a quota lets it wait. So nothing is lost: TCP fills every queue until it loses, and
behind a queue of a second it then waits for several.
Packets are no larger than the bucket: the kernel would take a larger one apart into frames of 1500 bytes, and carrying
each of them by itself costs this machine ten times as much, which a network card would do for a real node.
Delay needs the kernel's netem; where that is missing, the transport delays what arrives. See tc-tbf(8), tc-netem(8).
"""

from nfold.core.cluster import Channel

BURST_S = 5e-4
LEAST_BURST_BYTES = 5 << 10
"""Three full Ethernet frames: less would never let one pass."""
MOST_BURST_BYTES = 64 << 10
_HEADERS = 0.1
"""Of a packet: what the bucket counts beside its payload, at most."""
QUEUE_BYTES = 64 << 20
"""16 windows of the largest."""
WINDOW_S = 0.02
"""Two periods of a quota."""
LEAST_WINDOW_BYTES = 128 << 10
MOST_WINDOW_BYTES = 4 << 20
_NETEM_QUEUE = 100_000


def window_bytes(channel: Channel | None, round_trip_s: float = 0.0) -> int:
    """Return how many bytes each peer may have on its way to a node.

    Args:
        channel: in which the node receives; None: nothing holds it back.
        round_trip_s: by which the kernel delays it at most, so that as much is on its way.
    """
    if channel is None:
        return MOST_WINDOW_BYTES
    rate = channel.bandwidth_bytes_per_s
    return _between(LEAST_WINDOW_BYTES, rate * WINDOW_S, MOST_WINDOW_BYTES) + round(rate * round_trip_s)


def burst_bytes(channel: Channel) -> int:
    """Return the size of a link's token bucket, which is also that of its largest packet, headers included."""
    return _between(LEAST_BURST_BYTES, channel.bandwidth_bytes_per_s * BURST_S, MOST_BURST_BYTES)


def shape(
    device: str, channel: Channel | None, *, with_netem: bool, least_burst_bytes: int = LEAST_BURST_BYTES
) -> tuple[str, ...]:
    """Return the lines that shape what leaves a device; they also change a shape that is there already.

    Args:
        device: its name.
        channel: its rate and latency; None: nothing holds it back.
        with_netem: whether the kernel can delay.
        least_burst_bytes: of the bucket. A packet that waits for a bucket which has become smaller than itself waits
            for ever, and all behind it, so no bucket of a device may be smaller than those before.
    """
    if channel is None:
        return (f"qdisc del dev {device} root",)
    if with_netem and channel.latency_s > 0:
        delay = f"netem delay {channel.latency_s * 1e6:.0f}us limit {_NETEM_QUEUE}"
        bucket = _bucket(channel, least_burst_bytes)
        return (
            f"qdisc replace dev {device} root handle 1: {delay}",
            f"qdisc replace dev {device} parent 1:1 handle 10: {bucket}",
        )
    return (f"qdisc replace dev {device} root handle 1: {_bucket(channel, least_burst_bytes)}",)


def packets(device: str, largest_bytes: int) -> tuple[str, ...]:
    """Return the lines for `ip` that hold what a device sends at once below a size, headers included.

    A connection knows from its route how large its packets may be, and asks again when that has been flushed.
    """
    return f"link set dev {device} gso_max_size {int(largest_bytes * (1 - _HEADERS))}", "route flush cache"


def _bucket(channel: Channel, least_burst_bytes: int) -> str:
    rate_bits = max(8, round(channel.bandwidth_bytes_per_s * 8))
    return f"tbf rate {rate_bits}bit burst {max(least_burst_bytes, burst_bytes(channel))} limit {QUEUE_BYTES}"


def _between(least: int, value: float, most: int) -> int:
    return int(min(most, max(least, value)))
