"""Registry of running viewers: other programs find the addresses of their pages here.

A viewer that serves browsers has one small file in the runtime folder,
`viewer-PID-XXXX.json`: description and lock in one, which the viewer holds as long as
it lives.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pwd
import re
import secrets
import shlex
import socket
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits, run_folder
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.control.run_folder import runtime_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("splatview")
_FILE = re.compile(r"\.?viewer-[0-9]{1,10}-[0-9a-f]{8}\.json")
_URL = re.compile(
    r"http://(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})"
    r"(?:/(?:\?[A-Za-z0-9._~=&%-]*)?)?"
)


class RunningViewer(msgspec.Struct, frozen=True):
    """A running viewer that serves browsers.

    Fields that a later version adds are ignored.
    """

    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    url: Annotated[str, Meta(max_length=1024)]
    """The page's address on this machine, "http://HOST:PORT/?token=..."."""
    host: Annotated[str, Meta(min_length=1, max_length=255)]
    """The address that it listens at, as `port`."""
    port: Annotated[int, Meta(ge=1, le=65535)]
    run: Annotated[str, Meta(max_length=limits.MAX_NAME)] | None = None
    """The run that it is limited to, as `--run` named it; None if it shows all."""
    started: float = 0.0
    """Seconds since the epoch."""

    def __post_init__(self) -> None:
        match = _URL.fullmatch(self.url)
        if match is None or int(match[1]) != self.port:
            raise ValueError(
                f"url {self.url!r} is not of the form http://HOST:{self.port} or "
                f"http://HOST:{self.port}/?token=TOKEN"
            )


class Announcement:
    """The file of this viewer in the registry, until it is closed.

    It lets other programs of this user know that this process serves browsers: `with
    Announcement(...):` or `close()`. Call `refresh` now and then.
    """

    def __init__(self, url: str, *, host: str, port: int, run: str | None = None):
        """Write the file. The arguments are those of `RunningViewer`.

        Raises ValueError for a url that `RunningViewer` does not allow. A runtime
        folder that cannot be used is logged.
        """
        fields = {
            "pid": os.getpid(),
            "url": url,
            "host": host,
            "port": port,
            "run": run,
            "started": time.time(),
        }
        try:
            content = msgspec.json.encode(msgspec.convert(fields, RunningViewer))
        except msgspec.ValidationError as e:
            raise ValueError(f"announce: {e}") from None
        self._path: Path | None = None
        self._touch_due = 0.0
        self._lock_fd = -1
        try:
            self._write(content)
        except (OSError, RuntimeFolderError) as e:
            self.close()
            _log.warning(
                "splatview.show, status and demo will not find this viewer: %s", e
            )

    def _write(self, content: bytes) -> None:
        """Write the file, locked before any program can find it."""
        name = f"viewer-{os.getpid()}-{secrets.token_hex(4)}.json"
        path = runtime_folder() / name
        self._path = path.with_name(f".{name}")
        self._lock_fd = run_folder.create_locked(self._path)
        os.write(self._lock_fd, content)
        self._path = self._path.rename(path)

    def refresh(self, now: float) -> None:
        """Touch the file if an hour has passed.

        Cleaners of temporary files go by age.
        """
        if self._path is not None and now >= self._touch_due:
            self._touch_due = now + run_folder.TOUCH_PERIOD_S
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def close(self) -> None:
        """Remove the file. Idempotent."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._path = None
        self._lock_fd = -1

    def __enter__(self) -> Announcement:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def list_viewers() -> list[RunningViewer]:
    """Return the viewers of this user that serve browsers now, the newest first.

    Files of dead viewers are removed; files that cannot be read or understood are left
    out. Raises RuntimeFolderError when the runtime folder cannot be used.
    """
    viewers = []
    for path in _list_files():
        if run_folder.is_lock_held(path):
            if path.name.startswith("."):
                continue
            viewer = run_folder.read_description(path, RunningViewer)
            if viewer is not None:
                viewers.append(viewer)
        elif not run_folder.is_being_made(path):
            # Names are never used again, so that this is still the dead viewer's file.
            with contextlib.suppress(OSError):
                path.unlink()
    return sorted(viewers, key=lambda v: (v.started, v.pid), reverse=True)


def _list_files() -> list[Path]:
    """Return the registry's files in the runtime folder."""
    with os.scandir(runtime_folder()) as scan:
        entries = islice(scan, run_folder.MAX_ENTRIES)
        return [Path(entry.path) for entry in entries if _is_viewer_file(entry)]


def _is_viewer_file(entry: os.DirEntry[str]) -> bool:
    has_name = _FILE.fullmatch(entry.name) is not None
    return has_name and entry.is_file(follow_symlinks=False)


def ssh_forward_command(host: str, port: int, environ: Mapping[str, str]) -> str:
    """Return the command that brings a page served here to the user's own machine.

    It forwards `host` and `port` to the same port there, through the machine of the SSH
    session where that is another one. Returns "" if there is no SSH session.

    Args:
        host: the address of the page; an IPv6 address is in brackets.
        port: the port of the page.
        environ: the environment of this process.
    """
    # Client address and port, server address and port.
    connection = environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return ""
    _, _, address, ssh_port = connection
    user = environ.get("USER") or environ.get("LOGNAME") or ""
    if not user:
        # A container may have no entry for this user.
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(os.getuid()).pw_name
    command = ["ssh", "-L", f"{port}:{host}:{port}"]
    machine = address
    if not is_own_address(address):
        # A scheduler has brought the variable here from the machine of the login.
        bracketed = f"[{address}]" if ":" in address else address
        command += ["-J", f"{_at(user, bracketed)}:{ssh_port}"]
        machine = socket.gethostname()
    elif ssh_port != "22":
        command += ["-p", ssh_port]
    command.append(_at(user, machine))
    return shlex.join(command)


def _at(user: str, machine: str) -> str:
    return f"{user}@{machine}" if user else machine


def is_own_address(address: str) -> bool:
    """Return False if no interface of this machine has this address."""
    try:
        (family, kind, protocol, _, place), *_ = socket.getaddrinfo(
            address, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(place)
    except OSError as e:
        return e.errno != errno.EADDRNOTAVAIL
    return True
