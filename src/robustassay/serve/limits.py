"""The limits of what clients may take: time, connections, memory."""

from dataclasses import dataclass, field
from typing import Final, final

from robustassay.errors import BadRequest

RESERVED_DESCRIPTORS: Final = 64
"""File descriptors kept for everything other than connections."""

MAX_CONNECTIONS: Final = 2048


def connections_for_descriptors() -> int:
    """Return how many connections the file descriptors of this process allow.

    Only half of the free ones are used, because as many connections again may be accepted before the first is closed.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return int(max(2, min(MAX_CONNECTIONS, (allowed - RESERVED_DESCRIPTORS) // 2)))


@final
@dataclass(frozen=True)
class Limits:
    """How long a client may take to send and to read, and how much it may hold."""

    header_seconds: float = 10.0
    body_seconds: float = 30.0
    response_seconds: float = 30.0  # in which the client must read the response
    held_bytes: int = 64 << 20  # of the large bodies of all clients together
    connections: int = field(default_factory=connections_for_descriptors)

    def __post_init__(self) -> None:
        if not min(self.header_seconds, self.body_seconds, self.response_seconds) > 0:
            raise BadRequest("Time limits of a service must be above 0 seconds.")
        if self.held_bytes < 1 or self.connections < 2:
            raise BadRequest("A service needs at least 1 byte for bodies and 2 connections.")

    @property
    def connections_per_client(self) -> int:
        """Connections of one client: half of all, so that others can always connect."""
        return self.connections // 2

    @property
    def held_bytes_per_client(self) -> int:
        """Bytes of large bodies of one client."""
        return self.held_bytes // 4
