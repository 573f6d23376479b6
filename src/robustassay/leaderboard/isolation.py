"""The first code of a process that checks a submission: no network, before any library is loaded.

It is run as a file and imports only the standard library at first: Linux gives a network namespace to processes of one
thread, and numpy starts several.
"""

import contextlib
import ctypes
import json
import os
import sys
from typing import Any, Final

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_NETWORK_EVENTS: Final = frozenset(
    {
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.getnameinfo",
        "socket.sendmsg",
        "socket.sendto",
    }
)


def leave_network() -> str:
    """Cut this process off; return "none" if the system does it, "guarded" if only Python refuses connections."""
    sys.addaudithook(_refuse_network)
    return "none" if sys.platform.startswith("linux") and _enter_empty_network() else "guarded"


def _refuse_network(event: str, _: tuple[Any, ...]) -> None:
    if event in _NETWORK_EVENTS:
        raise PermissionError("A check opens no connections: use --network if your own --model needs one.")


def _enter_empty_network() -> bool:
    """Move to a new network namespace, which has no devices; keep the user's id."""
    user, group = os.getuid(), os.getgid()
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None:
        return False
    if unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return bool(unshare(_CLONE_NEWNET) == 0)  # root in a container may have no user namespaces
    with contextlib.suppress(OSError):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def main() -> None:
    """Read the request, and answer it on the output stream, which nothing else may then write to."""
    request = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    network = "allowed" if request["network"] else leave_network()

    from robustassay.leaderboard.checking import answer

    answer(request, network, answers)


if __name__ == "__main__":
    main()
