"""Who a client is: the address of its connection, or the one that a trusted proxy states."""

import ipaddress
import socket
from typing import Final

LOOPBACK: Final = ipaddress.ip_network("127.0.0.0/8")
"""All of it is this machine: a program here may connect from each of these addresses, and is one client."""


def client_of(host: str | None) -> str:
    """Return the name under which a client's requests are counted; an IPv6 network of 64 bits is one client."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:  # a proxy may pass on any text
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if isinstance(address, ipaddress.IPv4Address):
        return str(LOOPBACK if address in LOOPBACK else address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def is_address(text: str) -> bool:
    """Say whether a text is an IP address or network."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def is_proxy(client: str, trusted: str | None) -> bool:
    """Say whether a client is the trusted proxy."""
    if trusted is None or not is_address(client):
        return False
    return ipaddress.ip_network(client).overlaps(ipaddress.ip_network(trusted))


def is_loopback(host: str) -> bool:
    """Say whether only this machine can connect to a host name or address."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)
