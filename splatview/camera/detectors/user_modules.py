"""Import of a module in the working folder, and of what it imports from there itself.

The working folder may be one where other users write, such as /tmp, so it never enters
`sys.path`: each import of an optional package by an installed module would execute what
another user has left there under its name. A finder takes its place that answers only
to the name of the requested module and to imports written in modules from the folder;
installed modules win, as after a last entry of `sys.path`. Every file belongs to the
user or to root, no other user can write it, and the bytes that were checked are the
bytes that are executed: compiled files beside the source are not read.
"""

from __future__ import annotations

import contextlib
import grp
import importlib
import os
import pwd
import stat
import sys
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourcelessFileLoader,
)
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MAX_SOURCE = 16 << 20
"""Bytes of a source file."""


class UntrustedModuleError(ImportError):
    """A file in the working folder is not the user's alone."""


def import_user_module(name: str) -> ModuleType:
    """Import an installed module, or else one in the working folder.

    Raises:
        UntrustedModuleError: another user has written a file, or could write it.
        ImportError: there is no such module.
        Exception: whatever the module raises.
    """
    root = name.partition(".")[0]
    # An earlier finder may know another working folder.
    finders = [finder for finder in sys.meta_path if not _is_finder_of(finder, root)]
    sys.meta_path[:] = finders
    if root in sys.modules or find_spec(root) is not None:
        return importlib.import_module(name)
    # The working folder may have been deleted.
    with contextlib.suppress(FileNotFoundError):
        sys.meta_path.insert(0, _FolderFinder(os.getcwd(), root))
    return importlib.import_module(name)


def _is_finder_of(finder: object, root: str) -> bool:
    """Return whether a finder answers to the name of a module in a folder."""
    return isinstance(finder, _FolderFinder) and finder.root == root


class _FolderFinder(MetaPathFinder):
    """Finds the module `root` in a folder, its submodules, and what these import."""

    def __init__(self, folder: str, root: str) -> None:
        self.root = root
        self._folder = folder
        self._imported: set[str] = set()
        """Names of the modules that came from the folder."""

    def find_spec(
        self,
        fullname: str,
        path: Iterable[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        parent = fullname.rpartition(".")[0]
        if parent:
            if parent not in self._imported:
                return None
        elif fullname != self.root and not self._serves_import_of(fullname):
            return None
        for folder in path or (self._folder,):
            spec = _file_finder(folder).find_spec(fullname)
            if spec is not None:
                _check_spec(spec, folder)
                self._imported.add(fullname)
                return spec
        return None

    def _serves_import_of(self, name: str) -> bool:
        """Return whether a module from the folder imports what is not installed."""
        if _importing_module() not in self._imported:
            return False
        for finder in sys.meta_path:
            is_ours = isinstance(finder, _FolderFinder)
            if not is_ours and finder.find_spec(name, None):
                return False
        return True


def _importing_module() -> str:
    """Return the name of the module whose code executes the present import."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        is_machinery = name.partition(".")[0] in ("importlib", "_frozen_importlib")
        if name != __name__ and not is_machinery:
            return name
        frame = frame.f_back
    return ""


def _file_finder(folder: str) -> FileFinder:
    """Return a finder of the modules in a folder, whose sources are checked."""
    return FileFinder(
        folder,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_OwnSourceLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


class _OwnSourceLoader(SourceLoader):
    """Executes a source file of the user's, without files of bytecode."""

    def __init__(self, fullname: str, path: str) -> None:
        self.name = fullname
        self.path = path

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        return _read_own(os.fsdecode(path))


def _check_spec(spec: ModuleSpec, folder: str) -> None:
    """Raise UntrustedModuleError for a module whose loader does not check its file.

    Sources are checked when they are read.
    """
    locations = list(spec.submodule_search_locations or ())
    has_link = any(os.path.islink(location) for location in locations)
    if has_link and _why_shared(folder):
        raise _untrusted(locations[0], "it is a link in a folder of others")
    if isinstance(spec.loader, _OwnSourceLoader):
        return
    files = locations if spec.loader is None else [str(spec.origin)]
    for path in (folder, *files):
        reason = _why_shared(path)
        if reason:
            raise _untrusted(path, reason)


def _read_own(path: str) -> bytes:
    """Return the content of a file that is the user's alone.

    Raises UntrustedModuleError for any other file, and OSError.
    """
    # Where other users write, a link may lead to a file of the user's that was never
    # meant to be executed: a symbolic link is not followed, a hard link is refused.
    is_shared = bool(_why_shared(os.path.dirname(path)))
    links = os.O_NOFOLLOW if is_shared else 0
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    except OSError as error:
        raise _untrusted(path, error.strerror or str(error)) from error
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        reason = _why_shared(fd)
        if not stat.S_ISREG(status.st_mode):
            reason = "it is not a regular file"
        elif is_shared and status.st_nlink != 1:
            reason = "it is a link in a folder of others"
        elif status.st_size > _MAX_SOURCE:
            reason = f"it has over {_MAX_SOURCE >> 20} MB"
        if reason:
            raise _untrusted(path, reason)
        return file.read(_MAX_SOURCE)


def _why_shared(path: str | int) -> str:
    """Return why another user may decide what is in a file; "" if none can.

    Args:
        path: the path of a file or a folder, or a file descriptor.
    """
    status = os.stat(path)
    if status.st_uid not in (os.getuid(), 0):
        return f"it belongs to {_user_name(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return "all users may write to it"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, path):
        return f"all users of the group {_group_name(status.st_gid)} may write to it"
    return ""


def _is_private_group(gid: int, path: str | int) -> bool:
    """Return whether a group is the user's own: many systems make one for each user.

    With an access control list, the mode of a group counts for all who are listed.
    """
    try:
        user = pwd.getpwuid(os.getuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    if gid != user.pw_gid or group.gr_name != user.pw_name:
        return False
    if set(group.gr_mem) - {user.pw_name}:
        return False
    try:
        return "system.posix_acl_access" not in os.listxattr(path)
    except OSError:
        # The file system has no attributes.
        return True


def _user_name(uid: int) -> str:
    """Return a user's name for messages."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group_name(gid: int) -> str:
    """Return a group's name for messages."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _untrusted(path: str, reason: str) -> UntrustedModuleError:
    """Return the error for a file that is not executed."""
    return UntrustedModuleError(
        f"{path} is not executed: {reason}. Make it yours alone (chown, chmod go-w), or, "
        f"if you trust all who write there, name the folder: PYTHONPATH={os.getcwd()}"
    )
