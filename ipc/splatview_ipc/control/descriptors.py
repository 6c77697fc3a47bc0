"""File descriptors that the trainer hands to its viewers (SCM_RIGHTS).

They are memfds and chunks of GPU memory. Messages name them by unguessable tokens, and
a viewer fetches them over its own connection. That works where /proc/PID/fd does not:
for GPU memory, under ptrace restrictions, between PID namespaces.

Invariants
1. Descriptors are made again for each viewer, and closed once they are sent.
2. They are made under one lock, which `withdraw` takes: after it returns, `make` is not
   running and is not called again, so that no reused descriptor number is ever handed
       out.
3. A token stands for the same memory all its life, and is never used again.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import Descriptors, encode
from splatview_ipc.control.sockets import DESCRIPTORS_PER_PACKET, close_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_ipc.control.sockets import Connection

    Make = Callable[[int, int], list[int]]


class _DescriptorOffer(NamedTuple):
    """The descriptors behind a token."""

    total: int
    make: Make


_offers: dict[str, _DescriptorOffer] = {}
"""Offers by their tokens."""
_lock = threading.RLock()
"""Reentrant: a signal's handler may end the run amid its end."""


def offer(count: int, make: Make, token: str = "") -> str:
    """Let viewers of this process's runs fetch `count` descriptors; return the token.

    Args:
        count: the number of descriptors.
        make: `make(start, stop)` returns new descriptors of these numbers, at most
            DESCRIPTORS_PER_PACKET, or raises SharingError or OSError. It runs on the
            helper thread, under this module's lock.
        token: the caller's own, unguessable.
    """
    token = token or f"fds-{secrets.token_hex(12)}"
    with _lock:
        _offers[token] = _DescriptorOffer(count, make)
    return token


def withdraw(token: str) -> None:
    """Undo `offer`. Descriptors that viewers have fetched stay theirs. Idempotent."""
    with _lock:
        _offers.pop(token, None)


def make_descriptors(token: str, start: int, stop: int) -> tuple[list[int], int]:
    """Return new descriptors of a token, the caller's, and the number of all.

    None and 0 if they are not available.
    """
    with _lock:
        try:
            offered = _offers[token]
            fds = offered.make(start, min(stop, offered.total))
        except (KeyError, SharingError, OSError):
            return [], 0
        return fds, offered.total


def duplicate_all(fds: Sequence[int]) -> list[int]:
    """Return duplicates of all these descriptors.

    Raises SharingError when this process may not open so many.
    """
    copies: list[int] = []
    try:
        copies.extend(os.dup(fd) for fd in fds)
        return copies
    except OSError as e:
        close_all(copies)
        message = (
            f"no more file descriptors ({e.strerror}): raise the limit (ulimit -n)"
        )
        raise SharingError(message) from None


def send(connection: Connection, token: str) -> None:
    """Answer a viewer's Fetch. Raises EndedError.

    A viewer that does not read gets some of the descriptors, and fetches again.
    """
    sent = 0
    total = 1
    while sent < total:
        fds, total = make_descriptors(token, sent, sent + DESCRIPTORS_PER_PACKET)
        try:
            packet = encode(Descriptors(token, total))
            if not connection.send(packet, fds):
                return
        finally:
            close_all(fds)
        sent += len(fds)


def abandon() -> None:
    """Withdraw everything in a forked child: the memory is the parent's to offer."""
    global _lock
    _lock = threading.RLock()
    _offers.clear()
