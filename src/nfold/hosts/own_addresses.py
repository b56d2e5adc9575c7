"""Addresses of this machine at which others may reach it. Nothing is resolved: own names often lead nowhere."""

import fcntl
import socket
import struct

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915
_REQUEST = struct.Struct("256s")
_ADDRESS_AT = slice(20, 24)


def own_addresses() -> list[str]:
    """Return the IPv4 address of each interface that has one, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, _REQUEST.pack(name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            found.append(socket.inet_ntoa(answer[_ADDRESS_AT]))
    outer = [each for each in dict.fromkeys(found) if not each.startswith("127.")]
    return [*outer, LOOPBACK]
