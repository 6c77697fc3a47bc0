"""The user at the other end of a connection, from the kernel's tables."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.other_users import OTHER, needs_root
from support.wait import PATIENCE

from splatview.viewer_app.web import owner
from splatview.viewer_app.web.owner import End, Entry, Owners, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROWS = HEAD + """\
   0: 0100007F:1B5F 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31001 1 0000000000000000 100
   1: 0100007F:D431 0100007F:1B5F 01 00000000:00000000 00:00000000 00000000  1000        0 31002 1 0000000000000000 20
   2: 0100007F:1B5F 0100007F:D431 01 00000000:00000000 00:00000000 00000000   999        0 31003 1 0000000000000000 20
   3: 0100007F:D432 0100007F:1B5F 06 00000000:00000000 03:000012A8 00000000     0        0 0 3 0000000051274566
   4: 0100007F:D433 0100007F:1B60 01 00000000:00000000 00:00000000 00000000  1000        0 31004 1 0000000000000000 20
   5: 0200007F:D434 0100007F:1B5F 01 00000000:00000000 00:00000000 00000000  1000        0 31005 1 0000000000000000 20
   6: 0100007F:D435 0100007F:1B5F 01 00000000:00000000 00:00000000 00000000  1000        0 31006 1 0000000000000000 20
   7: 0100007F:D435 0100007F:1B5F 01 00000000:00000000 00:00000000 00000000  1001        0 31007 1 0000000000000000 20
"""
ROWS6 = HEAD + """\
   0: 0000000000000000FFFF00000100007F:D436 0000000000000000FFFF00000100007F:1B5F 01 00000000:00000000 00:00000000 \
00000000  1002        0 41001 1 0000000000000000 20
   1: 00000000000000000000000001000000:D437 00000000000000000000000001000000:1B5F 01 00000000:00000000 00:00000000 \
00000000  1003        0 41002 1 0000000000000000 20
   2: B80D0120000000000000000001000000:D437 00000000000000000000000001000000:1B5F 01 00000000:00000000 00:00000000 \
00000000  1004        0 41003 1 0000000000000000 20
"""
little = pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of a little-endian machine")
SERVER, SERVER6 = end_of(("127.0.0.1", 7007)), end_of(("::1", 7007, 0, 0))


def entry(address: str, port: int, rows: str = ROWS, rows6: str = ROWS6) -> Entry | None:
    end = end_of((address, port))
    return owner.in_rows(rows.encode(), rows6.encode(), end, SERVER if len(end.address) == 4 else SERVER6)


@little
@pytest.mark.parametrize(("address", "port", "uid", "inode"), [
    ("127.0.0.1", 54321, 1000, 31002), ("::ffff:127.0.0.1", 54321, 1000, 31002), ("127.0.0.2", 54324, 1000, 31005),
    ("127.0.0.1", 54326, 1002, 41001), ("::1", 54327, 1003, 41002), ("2001:db8::1", 54327, 1004, 41003),
])
def test_in_rows_finds_the_connected_socket(address: str, port: int, uid: int, inode: int) -> None:
    assert entry(address, port) == Entry(1, uid, inode)
    doubled = ROWS + ROWS.partition("\n")[2], ROWS6 + ROWS6.partition("\n")[2]
    assert entry(address, port, *doubled) == Entry(1, uid, inode), "a row may come twice"


@little
@pytest.mark.parametrize(("address", "port", "why"), [
    ("127.0.0.1", 54322, "TIME_WAIT"), ("127.0.0.1", 54323, "connected to another port"),
    ("127.0.0.1", 54324, "another address"), ("127.0.0.1", 54325, "two owners"), ("127.0.0.1", 54319, "not there"),
    ("::1", 54326, "IPv4"), ("127.0.0.1", 54327, "IPv6"),
])
def test_in_rows_does_not_guess(address: str, port: int, why: str) -> None:
    assert entry(address, port) is None


@little
def test_in_rows_leaves_out_what_is_cut_off() -> None:
    at = ROWS.index("31002")
    for end in range(ROWS.index(": 0100007F:D431"), at + 5):
        assert entry("127.0.0.1", 54321, ROWS[:end]) is None
    assert entry("127.0.0.1", 54321, "", "") is None


@pytest.mark.parametrize("name", [(), ("",), ("/tmp/x",), ("localhost", 1), (b"\0\0", 1), ("::ffff", "1"), ("::g", 1)])
def test_end_of_refuses_what_is_no_address(name: tuple[object, ...]) -> None:
    with pytest.raises((ValueError, IndexError)):
        end_of(name)
    assert end_of(("fe80::1%eth0", 7, 0, 2)) == End(bytes.fromhex("fe80" + "00" * 13 + "01"), 7)


# -- real sockets ------------------------------------------------------------------------------------------------------


@contextmanager
def connection(address: str, server: str = "") -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket that has connected to `address`, and the server's end, of a socket that listens at `server`."""
    server = server or address
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        listening = socket.create_server((server, 0), family=family, dualstack_ipv6=server == "::")
    except (OSError, ValueError) as e:
        pytest.skip(f"no {server} here: {e}")
    with listening, socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        client.connect((address, listening.getsockname()[1]))
        accepted, _ = listening.accept()
        with accepted:
            yield client, accepted


def owner_of(accepted: socket.socket, owners: Owners | None = None) -> int | None:
    """Run it in a thread of its own: the browser tests leave a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run((owners or Owners()).of(accepted))).result()


KINDS = [("127.0.0.1", ""), ("127.0.0.5", ""), ("::1", ""), ("::ffff:127.0.0.1", "127.0.0.1"), ("127.0.0.1", "::"),
         ("::1", "::")]


@pytest.fixture(params=["netlink", "tables"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where entries come from: netlink, or the tables as on a kernel where netlink has no answer."""
    if request.param == "tables":
        monkeypatch.setattr(owner, "_SOCK_DIAG", 31)  # no such netlink protocol
        with pytest.raises(OSError, match="not supported"):
            socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 31)
    else:
        monkeypatch.setattr(owner, "by_tables", None)
    return request.param


@pytest.mark.parametrize(("address", "server"), KINDS)
def test_owner_of_own_connection(source: str, address: str, server: str) -> None:
    with connection(address, server) as (client, accepted):
        assert owner_of(accepted) == owner_of(client) == os.geteuid()


def test_both_sources_tell_the_same() -> None:
    for address, server in KINDS:
        with connection(address, server) as (client, accepted):
            here, there = end_of(accepted.getsockname()), end_of(accepted.getpeername())
            unconnected = End(here.address, 1)  # the kernel has a listening socket for it
            pairs = [(there, here), (here, there), (here, here), (here, unconnected), (unconnected, here)]
            found = owner.by_netlink(pairs)
            assert found == owner.by_tables(pairs)
            ends = [Entry(1, os.geteuid(), os.fstat(one.fileno()).st_ino) for one in (client, accepted)]
            assert found == [*ends, None, None, None]


def test_owner_of_closed_connections_is_not_told(source: str) -> None:
    with connection("127.0.0.1") as (client, accepted):
        client.close()
        assert owner_of(accepted) is None, "what is left of a socket reads as root's"
    with connection("127.0.0.1") as (client, accepted):
        accepted.close()
        assert owner_of(accepted) is None


def test_owner_is_not_told_once_the_connection_has_ended(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port can be another one's by then, whose entry would be found."""
    with connection("127.0.0.1") as (client, accepted):
        looked_up = "by_netlink" if source == "netlink" else "by_tables"
        before = getattr(owner, looked_up)

        def and_closes(*args: object) -> object:
            found = before(*args)
            assert Entry(1, os.geteuid(), os.fstat(client.fileno()).st_ino) in found
            client.close()
            return found

        monkeypatch.setattr(owner, looked_up, and_closes)
        assert owner_of(accepted) is None


def test_owner_is_not_told_from_a_table_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "_SOCK_DIAG", 31)
    monkeypatch.setattr(owner, "_MOST", 100)
    with connection("127.0.0.1") as (_, accepted):
        assert owner_of(accepted) is None


def test_owner_is_not_told_without_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(owner, "_SOCK_DIAG", 31)
    before = owner.by_tables
    monkeypatch.setattr(owner, "by_tables", lambda pairs: before(pairs, str(tmp_path)))
    with connection("127.0.0.1") as (_, accepted):
        assert owner_of(accepted) is None
        shutil.copy("/proc/net/tcp", tmp_path)
        assert owner_of(accepted) == os.geteuid(), "a kernel without IPv6 has one table"


@needs_root
def test_owner_of_another_users_connection(source: str, programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        programs.code("import os, socket, sys; ''.encode('idna'); os.setuid(65534); "
                       "kept = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()",
                       str(listening.getsockname()[1]))
        listening.settimeout(PATIENCE)
        accepted, _ = listening.accept()
        with accepted:
            assert owner_of(accepted) is None, "this number stands for users without a name in a user namespace, too"
            owners = Owners()
            owners._unmapped = -1
            assert owner_of(accepted, owners) == OTHER


# -- other network namespaces ------------------------------------------------------------------------------------------

NAMESPACES = r"""
import asyncio, json, os, socket, subprocess, sys
from splatview.viewer_app.web import owner
from splatview.viewer_app.web.owner import Owners, end_of
HERE, THERE = "198.18.0.1", "198.18.0.2"
CLIENT = '''
import socket, sys
sys.stdin.readline()
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sys.stdin.read()
'''
def run(*command):
    subprocess.run(command, check=True)
run("ip", "link", "set", "lo", "up")
listening = socket.create_server(("0.0.0.0", 0))
port = listening.getsockname()[1]
other = subprocess.Popen(["unshare", "-n", sys.executable, "-c", CLIENT, HERE, str(port)], stdin=subprocess.PIPE)
try:
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{other.pid}/ns/net") == own:  # until unshare has done it
        pass
    run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(other.pid))
    run("ip", "address", "add", HERE + "/24", "dev", "near")
    run("ip", "link", "set", "near", "up")
    within = "nsenter", "-n", "-t", str(other.pid), "ip"
    run(*within, "address", "add", THERE + "/24", "dev", "far")
    run(*within, "link", "set", "far", "up")
    other.stdin.write(b"\n")
    other.stdin.flush()
    listening.settimeout(float(sys.argv[1]))
    accepted, peer = listening.accept()
    result = {"peer": peer[0], "owner": asyncio.run(Owners().of(accepted))}
    # An entry of the same two ends in this namespace, as far as one can be had.
    twin = socket.socket()
    twin.setsockopt(socket.IPPROTO_IP, 19, 1)  # IP_TRANSPARENT: root alone may take a foreign address
    twin.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    twin.setblocking(False)
    twin.bind(peer)
    twin.connect_ex((HERE, port))
    pair = [(end_of(peer), end_of((HERE, port)))]
    found = owner.by_netlink(pair)[0]
    result["twin"] = found is not None and found.uid == os.geteuid() and found.inode == os.fstat(twin.fileno()).st_ino
    result["owner beside it"] = asyncio.run(Owners().of(accepted))
    local = socket.create_connection(("127.0.0.1", port))
    result["own"] = asyncio.run(Owners().of(listening.accept()[0]))
    print(json.dumps(result))
finally:
    other.kill()
    other.wait()
"""


def can_unshare() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip"))
    return tools and subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


@needs_root
@pytest.mark.skipif(not can_unshare(), reason="network namespaces need unshare, nsenter, ip and the right to make one")
def test_owner_in_another_network_namespace_is_not_told() -> None:
    """The same number there can be another user, and an entry here that looks the same is another socket's."""
    done = subprocess.run(["unshare", "-n", sys.executable, "-c", NAMESPACES, str(PATIENCE)], capture_output=True,
                          text=True, timeout=2 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"peer": "198.18.0.2", "owner": None, "twin": True, "owner beside it": None,
                                       "own": os.geteuid()}
