"""The user that owns the other end of a TCP connection from this machine, as the kernel knows it.

TCP has no SO_PEERCRED. The kernel tells the owner of a socket by its two addresses, in two places:

- NETLINK_SOCK_DIAG looks one socket up in the kernel's hash table. It costs 20 us however many sockets there are, and
  sees the table at one moment. It is asked first.
- /proc/net/tcp and tcp6 list all sockets, in pieces: a row can be missing or appear twice while others come and go, and
  one look is as long as the table. They are read only where netlink has no answer (gVisor, seccomp, no tcp_diag).

Both ends have to match. An entry counts only for an established connection with an inode: the remains of a closed
socket (TIME_WAIT, orphans) read as uid 0. This process's own end has to be found in the same place with its own inode;
otherwise the place belongs to another network namespace, or is not there.

The owner of a forwarded connection is the program that forwards. An ssh tunnel ends in a process of sshd that runs as
the user who logged in. Relays of root (docker-proxy) carry connections of others, and are the user's own only where the
viewer is root's.

A port that is used again cannot lend its new owner to an old connection. The connection is checked after its peer was
looked up: while this end is established, the kernel lets no other socket establish the same pair of addresses.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket
    from collections.abc import Sequence

    Connected = socket.socket | TransportSocket

ESTABLISHED = 1
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER, _DIAG_REQUEST, _ENDS = struct.Struct("=IHHII"), struct.Struct("=BBBxI"), struct.Struct("!HH16s16s")
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""No network device, and whatever cookie the socket has."""
_DIAG_ANSWER = struct.Struct("=BBBB48xIIIII")
_WAIT = 0.5
"""Seconds for an answer of the kernel, which is there when the request was sent."""
_MOST = 16 << 20
"""Bytes of a table in /proc, some 100,000 sockets. With more of them the owner cannot be told."""
_MAPPED = bytes(10) + b"\xff\xff"


class End(NamedTuple):
    """One end of a connection."""

    address: bytes
    """4 bytes of IPv4, also where IPv6 maps it, or 16 of IPv6."""
    port: int


class Entry(NamedTuple):
    """The kernel's entry for one socket."""

    state: int
    uid: int
    inode: int
    """0: no process has it."""


class Owners:
    """Looks up owners for one event loop, and reads at most one table at a time."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._unmapped = _overflow_uid()

    async def of(self, connection: Connected) -> int | None:
        """Return the uid at the other end, or None where it cannot be told. Look once for each connection."""
        try:
            here, there = end_of(connection.getsockname()), end_of(connection.getpeername())
            inode = os.fstat(connection.fileno()).st_ino
            pairs = (there, here), (here, there)  # its entry first: see above
            far, near = by_netlink(pairs)
            if near is None or near.inode != inode:
                async with self._reading:  # a flood of connections has one thread, and not the event loop
                    far, near = await asyncio.to_thread(by_tables, pairs)
            if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
                return None
        except (OSError, ValueError):  # closed meanwhile
            return None
        if far is None or near is None or near.inode != inode or far.state != ESTABLISHED or far.inode == 0:
            return None
        # A user without a name in this user namespace reads as this number, whichever user it is.
        return None if far.uid == self._unmapped else far.uid


def end_of(name: Sequence[object]) -> End:
    """Return the end that `getsockname` or `getpeername` describes. Raises ValueError for anything but IP."""
    address, port = name[0], name[1]
    if not isinstance(address, str) or not isinstance(port, int):
        raise ValueError(f"invalid socket name {name!r}: expected an IP address and a port")
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address.partition("%")[0])
    except OSError as e:
        raise ValueError(f"invalid address {address!r}: {e}") from None
    return End(packed.removeprefix(_MAPPED) if len(packed) == 16 else packed, port)


def by_netlink(pairs: Sequence[tuple[End, End]]) -> list[Entry | None]:
    """Return the entry of the socket at the first end of each pair that is connected to the second; None: not found,
    or netlink cannot be used here."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(_WAIT)
            return [_ask(kernel, number, *pair) for number, pair in enumerate(pairs, 1)]
    except OSError:
        return [None] * len(pairs)


def _ask(kernel: socket.socket, number: int, local: End, remote: End) -> Entry | None:
    family = socket.AF_INET if len(local.address) == 4 else socket.AF_INET6
    ends = _ENDS.pack(local.port, remote.port, local.address, remote.address)
    request = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + _ANY_COOKIE
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST, number, 0)
    kernel.sendto(header + request, (0, 0))
    answer, (sender, _) = kernel.recvfrom(4096)
    if len(answer) < _HEADER.size + _DIAG_ANSWER.size or sender != 0:  # an error: there is no such socket
        return None
    _, kind, _, answered, _ = _HEADER.unpack_from(answer)
    if (kind, answered) != (_SOCK_DIAG_BY_FAMILY, number):
        return None
    family, state, _, _, _, _, _, uid, inode = _DIAG_ANSWER.unpack_from(answer, _HEADER.size)
    own_port, far_port, own, far = _ENDS.unpack_from(answer, _HEADER.size + 4)
    size = 4 if family == socket.AF_INET else 16
    found = [(address[:size].removeprefix(_MAPPED), port) for address, port in ((own, own_port), (far, far_port))]
    # The kernel gives a listening socket where none is connected.
    return Entry(state, uid, inode) if found == [local, remote] else None


def by_tables(pairs: Sequence[tuple[End, End]], folder: str = "/proc/net") -> list[Entry | None]:
    """Do as `by_netlink`, from the tables in /proc/net."""
    try:
        with open(f"{folder}/tcp", "rb") as file:
            rows = file.read(_MOST)
        try:
            with open(f"{folder}/tcp6", "rb") as file:
                rows6 = file.read(_MOST)
        except FileNotFoundError:  # a kernel without IPv6
            rows6 = b""
    except OSError:
        return [None] * len(pairs)
    if max(len(rows), len(rows6)) >= _MOST:
        return [None] * len(pairs)
    return [in_rows(rows, rows6, *pair) for pair in pairs]


def in_rows(rows: bytes, rows6: bytes, local: End, remote: End) -> Entry | None:
    """Return the established entry of `local`, connected to `remote`, in the text of /proc/net/tcp and of tcp6. None:
    not found, or found with two owners."""
    found = set()
    for text, wide in ((rows, False), (rows6, True)):
        if len(local.address) == 16 and not wide:
            continue
        key = f": {_written(local, wide)} {_written(remote, wide)} {ESTABLISHED:02X} ".encode()
        at = text.find(key)
        while at >= 0:
            end = text.find(b"\n", at)
            fields = text[at + 1:end].split() if end >= 0 else []  # the text may end within a row
            if len(fields) > 8:
                found.add(Entry(ESTABLISHED, int(fields[6]), int(fields[8])))
            at = text.find(key, at + 1)
    return found.pop() if len(found) == 1 else None


def _written(end: End, wide: bool) -> str:
    """An end as the tables show it: words of 32 bits in this machine's byte order."""
    packed = _MAPPED + end.address if wide and len(end.address) == 4 else end.address
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed)) + f":{end.port:04X}"


def _overflow_uid() -> int:
    try:
        with open("/proc/sys/kernel/overflowuid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534
