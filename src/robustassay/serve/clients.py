"""Who a client is: the address of its connection, or the one that a trusted proxy states."""

import ipaddress
import socket


def client_of(host: str | None) -> str:
    """Return the name under which a client's requests are counted; an IPv6 network of 64 bits is one client."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:  # a proxy may pass on any text
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def machine_of(client: str) -> str:
    """Return the name of a client's machine: a program on this one may connect from any address of 127.0.0.0/8."""
    return "this machine" if client.startswith("127.") else client


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
