"""Carries a link over an encrypted connection. What lies in memory, decrypted or still to be sent, no loop can see."""

from collections.abc import Sequence

from nfold.transport.connecting.tls_socket import MOST_HELD_BYTES, TlsSocket
from nfold.transport.links.link import Link
from nfold.transport.links.loop import READ, Loop
from nfold.transport.links.tcp_carrier import SocketCarrier


class TlsCarrier(SocketCarrier):
    """One encrypted connection."""

    def __init__(self, loop: Loop, connection: TlsSocket, link: Link) -> None:
        super().__init__(loop, connection, link)
        self._tls = connection

    def start(self) -> None:
        """Begin to read. First words may have come with the last ones of those who met."""
        self._loop.call(lambda: self._serve(READ))

    def try_write(self, parts: Sequence[memoryview]) -> int:
        """Write what the kernel takes without waiting, and a little more; the loop writes what is left of that."""
        num_bytes = super().try_write(parts)
        if self._tls.has_unsent and not self._loop.is_current:
            self.wake()
        return num_bytes

    def _has_to_write(self) -> bool:
        return super()._has_to_write() or self._tls.has_unsent

    def _give_up(self) -> None:
        super()._give_up()
        self._tls.drop_unsent()

    def _write(self) -> None:
        if self._tls.flush():
            super()._write()

    def _read(self) -> None:
        self._take_in()
        if self._reading and self._fetch():
            self._take_in()
        self._wake_when_worth_it()

    def _take_in(self) -> None:
        while self._reading and (num_bytes := self._tls.open(self._rest)):
            self._filled(num_bytes)

    def _fetch(self) -> bool:
        try:
            num_bytes = self._tls.fetch()
        except BlockingIOError:  # the kernel has had second thoughts, or nothing has come yet
            return False
        if num_bytes == 0:
            raise ConnectionError("it closed the connection")
        return True

    def _awaited_bytes(self) -> int:
        """Return how many bytes surely come: OpenSSL holds a part of a record, and does not say how much."""
        return len(self._rest) - MOST_HELD_BYTES
