"""Targets for output that are no plain new file, and everything that writes one."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REASONS = {
    **dict.fromkeys(("fifo", "device", "socket", "folder", "link to a device", "link to a fifo"), "not a regular file"),
    "links in a circle": "Too many levels of symbolic links",
    "link to no folder": "there is no folder", "no folder": "there is no folder",
}
"""Each kind of target that is refused, and the words that say why."""


def make_target(kind: str, path: Path) -> Path:
    """Make a target of one of the REASONS at `path`, or below it; skip where this user may not make it."""
    if kind in ("fifo", "link to a fifo"):
        os.mkfifo(path if kind == "fifo" else path.with_name("real"))
    elif kind in ("device", "link to a device"):
        make_device(path if kind == "device" else path.with_name("real"))
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            folder = os.open(path.parent, os.O_PATH)
            one.bind(f"/proc/self/fd/{folder}/{path.name}")  # a socket's address is short
            os.close(folder)
    elif kind == "folder":
        path.mkdir()
    elif kind == "links in a circle":
        path.symlink_to(path.with_name("other"))
        path.with_name("other").symlink_to(path)
    elif kind == "link to no folder":
        path.symlink_to("missing/new.png")
    elif kind == "no folder":
        return path.parent / "missing" / path.name
    if kind in ("link to a fifo", "link to a device"):
        path.symlink_to("real")
    return path


def make_device(path: Path) -> None:
    """A device node like /dev/null, in a folder of the test."""
    try:
        os.mknod(path, 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this user may not make device nodes")


def listing(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that is in a folder, with what changes when something is replaced or written."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        s = path.lstat()
        found[str(path.relative_to(folder))] = (s.st_ino, s.st_mode, s.st_rdev, s.st_size, s.st_mtime_ns, s.st_uid)
    return {name: (facts[0], facts[1]) if facts[1] & 0o170000 == 0o040000 else facts for name, facts in found.items()}


# -- what writes a file that is replaced -----------------------------------------------------------------------------


def _png(path: Path) -> None:
    from splatview_viewer.formats.pictures import save_picture

    save_picture(np.full((6, 8, 3), 50, np.uint8), path)


def _mp4(path: Path) -> None:
    from splatview_viewer.formats.path_writers import Mp4

    pytest.importorskip("av")
    _write(Mp4(path, 64, 48, 10.0), 3)


def _write(writer: Any, pictures: int) -> Path:
    try:
        for i in range(pictures):
            writer.add(np.full((48, 64, 3), 50 * i, np.uint8))
        writer.close()
    except BaseException:
        writer.abort()
        raise
    return writer.out


def _trained(path: Path) -> None:
    import torch

    from splatview.demo.files import write_gaussians

    n = 5
    write_gaussians(path, {"means": torch.zeros(n, 3), "sh0": torch.zeros(n, 1, 3), "shN": torch.zeros(n, 3, 3),
                           "opacities": torch.zeros(n), "scales": torch.zeros(n, 3), "quats": torch.ones(n, 4)})


def _recorded(path: Path) -> None:
    from splatview_viewer.recording.files import write_packed
    from splatview_viewer.recording.packed import pack
    from support.recordings import scene

    write_packed(path, pack(scene(20), None))


def _bytes(path: Path) -> None:
    from splatview_ipc.system.files import write_output

    write_output(path, b"content", private=True)


REPLACING: dict[str, Callable[[Path], None]] = {
    "a picture": _png, "a film": _mp4, "trained Gaussians": _trained, "a recorded scene": _recorded,
    "what is remembered": _bytes}


# -- what writes a file under a free name ----------------------------------------------------------------------------


def _kept(folder: Path) -> Path:
    from splatview_viewer.formats.pictures import output_path, save_picture

    return save_picture(np.full((6, 8, 3), 50, np.uint8), output_path("a", ".png", folder), numbered=True)


def _exported(folder: Path) -> Path:
    from splatview_viewer.formats.ply import write_ply
    from support.recordings import scene

    return write_ply(scene(20, activated=True), folder / "a.ply")[0]


def _film(folder: Path) -> Path:
    pytest.importorskip("av")
    return _filmed(folder / "a.mp4")


def _frames(folder: Path) -> Path:
    return _filmed(folder / "a")


def _filmed(path: Path) -> Path:
    from splatview_viewer.formats.path_writers import make_writer

    return _write(make_writer(path, 64, 48, 10.0, False, numbered=True), 1)


def _answer(folder: Path) -> Path:
    from splatview_viewer.kinds.snapshot.panes.sql import save_csv

    class Database:
        def csv(self, text: str, out: Any, **_: Any) -> int:
            out.write("one,zw\u00f6lf\n1,12\n")
            return 1

    return folder.__class__(save_csv(Database(), "", "a", folder).removeprefix("Saved "))  # type: ignore[arg-type]


NUMBERED: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "a screenshot": ("a.png", _kept), "an export": ("a.ply", _exported), "a film of the viewer": ("a.mp4", _film),
    "frames of the viewer": ("a", _frames), "an answer as CSV": ("a.csv", _answer)}
"""The name that it takes where that is free, and what writes it."""


# -- commands --------------------------------------------------------------------------------------------------------


def _viewer(*args: object) -> int:
    from splatview_viewer.__main__ import main

    return main([str(a) for a in args])


def _demo(*args: object) -> int:
    from splatview.demo.command import main

    return main([str(a) for a in args])


def _camera(*args: object) -> int:
    from splatview.camera.command import main

    return main([str(a) for a in args])


COMMANDS: dict[str, Callable[[Path], int]] = {
    "shot OUT": lambda path: _viewer("shot", path, "missing.ply"),
    "video OUT.mp4": lambda path: _viewer("video", path, "missing.ply"),
    "memory --png": lambda path: _viewer("memory", __file__, "--png", path),
    "memory --out": lambda path: _viewer("memory", __file__, "--offscreen", "--out", path),
    "serve --out": lambda path: _viewer("serve", "missing.ply", "--offscreen", "--out", path),
    "camera --out": lambda path: _camera("test", "--offscreen", "--out", path),
    "demo --out": lambda path: _demo("--offscreen", "--out", path),
    "demo --save": lambda path: _demo("--offscreen", "--save", path),
}
"""Each with a path to write and with input that is missing, so that only what is refused before work shows."""
