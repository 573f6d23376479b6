"""The open connections: how many there may be, and which is closed to make room."""

from typing import Protocol, final

from robustassay.serve.clients import is_proxy
from robustassay.serve.limits import Limits


class Connection(Protocol):
    """What the table needs of a connection."""

    client: str
    waiting_since: float | None

    def abort(self) -> None:
        """Close the connection at once."""


@final
class ConnectionTable:
    """Admits connections, in all and per client.

    A full table closes a connection that waits for its client (for a header, a body, or until the response is read): of
    the client with the most connections, the one that has waited longest.
    """

    def __init__(self, limits: Limits, trusted_proxy: str | None = None) -> None:
        self._limits, self._trusted_proxy = limits, trusted_proxy
        self._by_client: dict[str, set[Connection]] = {}
        self._count = 0

    def admit(self, connection: Connection) -> bool:
        """Add a connection, closing another if need be; False if there is no room."""
        own = self._by_client.get(connection.client, set())
        brings_others = is_proxy(connection.client, self._trusted_proxy)
        if len(own) >= self._limits.connections_per_client and not brings_others:
            candidates = list(own)
        elif self._count >= self._limits.connections:
            candidates = [one for several in self._by_client.values() for one in several]
        else:
            candidates = None
        if candidates is not None and not self._close_one(candidates):
            return False
        self._by_client.setdefault(connection.client, set()).add(connection)
        self._count += 1
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        own = self._by_client.get(connection.client, set())
        if connection not in own:
            return
        own.discard(connection)
        self._count -= 1
        if not own:
            del self._by_client[connection.client]

    def _close_one(self, candidates: list[Connection]) -> bool:
        waiting = [(one.waiting_since, one) for one in candidates if one.waiting_since is not None]
        if not waiting:
            return False
        _, victim = min(waiting, key=lambda pair: (-len(self._by_client[pair[1].client]), pair[0]))
        self.remove(victim)
        victim.abort()
        return True
