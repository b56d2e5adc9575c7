"""Moves bytes between ranks over torch.distributed's point-to-point messages, backend Gloo.

A raw process group is built on a TCP store, apart from torch's global one, so a new generation can follow at any
time. Gloo needs a posted receive for every send and has tags of 31 bits, so a pair is used as an ordered pipe: a
header, then its payload, all with one tag of Gloo. Tags of 64 bits and early messages then work as on TCP.

Nothing here proves who a peer is: the token keeps jobs with one store apart, and no more. Use it on trusted networks.
NCCL is refused. It would need one communicator per direction (messages of one match in the order of issue, so a
receive that waits for the next header would hold up all sends), and that is untested.
"""

import socket
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]  # not re-exported

from nfold.errors import ClusterError, TransportError
from nfold.transport.handshake import job_name
from nfold.transport.linked import LinkedTransport
from nfold.transport.listener import Address, Listener
from nfold.transport.pumped import PumpedCarrier

_PATIENCE = timedelta(days=365)
"""A receive may wait this long: lost peers break their connection, and nothing else is a failure."""
_TAG = 0
"""Gloo keeps the messages of one tag in order."""


class StoreServer:
    """The TCP store over which the ranks of a job find each other. Any one process hosts it."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Listen on an address of this machine; port 0 takes any free one.

        Raises:
            ClusterError: the address is not ours, or the port is in use.
        """
        with Listener(host, port) as listener:
            self.address: Address = listener.address
            descriptor = socket.dup(listener.socket.fileno())
        self._store: TCPStore | None = TCPStore(
            host, self.address[1], is_master=True, wait_for_workers=False, master_listen_fd=descriptor
        )

    def close(self) -> None:
        """Stop serving. Groups that exist already live on."""
        self._store = None


class TorchTransport(LinkedTransport):
    """Moves bytes between ranks over a process group. Make one with `connect_group`."""

    def __init__(self, group: Any, rank: int, world_size: int, delays_s: Sequence[float] = ()) -> None:
        peers = [peer for peer in range(world_size) if peer != rank]
        carries = {peer: partial(PumpedCarrier, GroupPipe(group, peer), peer) for peer in peers}
        super().__init__(rank, carries, delays_s=delays_s)


def connect_group(
    rank: int,
    world_size: int,
    host: str,
    store_address: Address,
    token: str,
    timeout_s: float,
    backend: str = "gloo",
    delays_s: Sequence[float] = (),
) -> TorchTransport:
    """Connect to all other ranks.

    Args:
        rank: of this process.
        world_size: how many ranks there are.
        host: the address of this machine that the others reach. It is never looked up from our own name.
        store_address: of the `StoreServer`.
        token: the same for all ranks, another one for every generation.
        timeout_s: how long to wait for all together.
        backend: `gloo`.
        delays_s: how much later to deliver what each rank sent, by rank; empty: at once.

    Raises:
        TransportError: some rank did not come in time; the message says which.
        ClusterError: the backend is not supported.
    """
    if backend != "gloo":
        raise ClusterError(f"torch.distributed's backend {backend!r} is not supported for transport. Use 'gloo'.")
    store = _join_store(store_address, token, timeout_s)
    _wait_for_all(store, rank, world_size, timeout_s)
    try:
        return TorchTransport(_make_gloo(store, rank, world_size, host, timeout_s), rank, world_size, delays_s)
    except RuntimeError as error:
        raise TransportError(
            f"rank {rank} of {world_size} cannot build a Gloo group on address {host} within {timeout_s:g} s: {error}"
        ) from error


def _join_store(address: Address, token: str, timeout_s: float) -> PrefixStore:
    host, port = address
    timeout = timedelta(seconds=timeout_s)
    try:
        store = TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
    except RuntimeError as error:
        raise TransportError(
            f"no store answers at {host}:{port} within {timeout_s:g} s. "
            f"Check that it runs and can be reached from here."
        ) from error
    return PrefixStore(job_name(token), store)


def _wait_for_all(store: PrefixStore, rank: int, world_size: int, timeout_s: float) -> None:
    keys = [f"here/{other}" for other in range(world_size)]
    store.set(keys[rank], "1")
    try:
        store.wait(keys, timedelta(seconds=timeout_s))
    except RuntimeError:
        missing = [other for other, key in enumerate(keys) if not store.check([key])]
        raise TransportError(
            f"rank {rank} waited {timeout_s:g} s and did not meet rank {', '.join(map(str, missing))}. Check that they "
            f"run, that they use the same store and that all have the same token, or wait longer."
        ) from None


def _make_gloo(store: PrefixStore, rank: int, world_size: int, host: str, timeout_s: float) -> Any:
    gloo: Any = ProcessGroupGloo  # its stubs lack the options
    options = gloo._Options()
    options._timeout = timedelta(seconds=timeout_s)
    options._threads = 1
    options._devices = [gloo.create_device(hostname=host, lazy_init=False)]
    return gloo(store, rank, world_size, options)


class GroupPipe:
    """One pair of a process group as a `Pipe`."""

    def __init__(self, group: Any, peer: int) -> None:
        self._group = group
        self._peer = peer

    def read_into(self, target: memoryview) -> None:
        """Wait until the target is full."""
        self._group.recv([torch.frombuffer(target, dtype=torch.uint8)], self._peer, _TAG).wait(_PATIENCE)

    def write(self, parts: Sequence[memoryview]) -> None:
        """Wait until the peer has received all parts."""
        tensors = [_tensor(part) for part in parts]
        for work in [self._group.send([tensor], self._peer, _TAG) for tensor in tensors]:
            work.wait(_PATIENCE)

    def shutdown(self) -> None:
        """Do nothing: Gloo cannot wake who waits. The goodbye of the frames does."""

    def close(self) -> None:
        """Let go of the group; the last pipe to do so ends it."""
        self._group = None


def _tensor(data: memoryview) -> torch.Tensor:
    """Return the same memory as a tensor; read-only memory is copied, since torch warns of it."""
    return torch.frombuffer(bytearray(data) if data.readonly else data, dtype=torch.uint8)
