"""How other programs find the page of a running viewer.

A viewer that serves browsers announces itself in the runtime folder with one small file, `viewer-PID-XXXX.json`. The
file is description and lock in one: the viewer holds a lock on it as long as it lives, which is the only sign of
life, as for runs. Runs are folders there, so that neither is taken for the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pwd
import re
import secrets
import shlex
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.control.run_folder import announcements, held, read_description, remove_announcement, runtime_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Announcement", "ViewerInfo", "announce", "ssh_line", "viewers"]

_log = logging.getLogger("splatview")
_URL = re.compile(r"http://(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})"
                  r"(?:/(?:\?[A-Za-z0-9._~=&%-]*)?)?")
PERIOD = 5.0
"""Seconds between two looks whether a viewer's entry is still there."""


class ViewerInfo(msgspec.Struct, frozen=True):
    """A running viewer that serves browsers. Fields that a later version adds are ignored."""

    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    url: Annotated[str, Meta(max_length=1024)]
    """What a browser on this machine opens, "http://HOST:PORT/?token=..."."""
    host: Annotated[str, Meta(min_length=1, max_length=255)]
    """The address that it listens at."""
    port: Annotated[int, Meta(ge=1, le=65535)]
    run: Annotated[str, Meta(max_length=limits.MAX_NAME)] | None = None
    """The run that it is limited to, as `--run` named it; None: it shows all."""
    started: float = 0.0
    """Seconds since the epoch."""

    def __post_init__(self) -> None:
        match = _URL.fullmatch(self.url)
        if match is None or int(match[1]) != self.port:
            raise ValueError(f"url {self.url!r} is not of the form http://HOST:{self.port} or "
                             f"http://HOST:{self.port}/?token=TOKEN")


class Announcement:
    """One viewer's entry, as long as it is open. `with announce(...):` or `close()`."""

    def __init__(self, content: bytes):
        self._content = content
        self._path: Path | None = None
        self._lock_fd = -1
        self._due = 0.0
        self._told = self._closed = False
        self.look()

    def look(self) -> None:
        """Make the entry again where it was taken away, as cleaners of temporary files do, or where it could not be
        made. Looks every few seconds, however often it is called."""
        now = time.monotonic()
        if self._closed or now < self._due:
            return
        self._due = now + PERIOD
        if self._in_place():
            return
        self._drop()
        try:
            self._make()
        except (OSError, RuntimeFolderError) as e:
            if not self._told:
                _log.warning("splatview.show, status and demo will not find this viewer: %s", e)
            self._told = True

    def close(self) -> None:
        """Take the entry away. Idempotent."""
        self._closed = True
        self._drop()

    def _in_place(self) -> bool:
        try:
            return self._path is not None and os.path.samestat(os.lstat(self._path), os.fstat(self._lock_fd))
        except OSError:
            return False

    def _make(self) -> None:
        root = runtime_folder()
        name = f"viewer-{os.getpid()}-{secrets.token_hex(4)}.json"
        hidden = root / f".{name}"
        fd = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._path, self._lock_fd = hidden, fd
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before anyone can see it
            with open(fd, "wb", closefd=False) as f:
                f.write(self._content)
            hidden.rename(root / name)
        except OSError:
            self._drop()
            raise
        self._path = root / name

    def _drop(self) -> None:
        path, fd, self._path, self._lock_fd = self._path, self._lock_fd, None, -1
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Announcement:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def announce(url: str, *, host: str, port: int, run: str | None = None) -> Announcement:
    """Tell other programs of this user that this process serves browsers at `url`. Call it when it answers.

    host, port: where it listens. run: what `--run` limits it to. Raises ValueError for a url that `ViewerInfo` does
    not allow. A runtime folder that cannot be used is logged: the viewer works, it is only not found by others.
    Call `look` now and then.
    """
    said = {"pid": os.getpid(), "url": url, "host": host, "port": port, "run": run, "started": time.time()}
    try:
        content = msgspec.json.encode(msgspec.convert(said, ViewerInfo))
    except msgspec.ValidationError as e:
        raise ValueError(f"announce: {e}") from None
    return Announcement(content)


def viewers() -> list[ViewerInfo]:
    """The viewers of this user that serve browsers now, newest first. What dead ones left behind is removed.

    What cannot be read or understood is left out. Raises RuntimeFolderError when the runtime folder cannot be used.
    """
    found = []
    for path in announcements(runtime_folder()):
        if remove_announcement(path) or path.name.startswith(".") or not held(path):
            continue
        info = read_description(path, ViewerInfo)
        if info is not None:
            found.append(info)
    return sorted(found, key=lambda v: (v.started, v.pid), reverse=True)


def ssh_line(host: str, port: int, environ: Mapping[str, str]) -> str:
    """What to type on one's own machine to bring a page served here at `host` and `port` to the same port there; ""
    where `environ` tells of no SSH session. An IPv6 address is in brackets."""
    connection = environ.get("SSH_CONNECTION", "").split()  # client address and port, server address and port
    if len(connection) != 4:
        return ""
    _, _, address, ssh_port = connection
    user = _user(environ)
    return shlex.join(["ssh", "-L", f"{port}:{host}:{port}", *(["-p", ssh_port] if ssh_port != "22" else []),
                       f"{user}@{address}" if user else address])


def _user(environ: Mapping[str, str]) -> str:
    name = environ.get("USER") or environ.get("LOGNAME")
    if name:
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container without an entry for this user
        return ""
