"""Cameras as Linux names them: which there are, and why one cannot be used."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from splatview.camera.sources import CameraError, HopelessError

_QUERYCAP = 0x80685600
"""VIDIOC_QUERYCAP, which fills a struct v4l2_capability."""
_CAPABILITY = struct.Struct("16s32s32s3I12x")
"""driver, card, bus, version, capabilities, capabilities of this node."""
_CAPTURES = 0x1 | 0x1000
"""V4L2_CAP_VIDEO_CAPTURE, also multi-planar."""
_PER_NODE = 0x80000000


def cameras() -> list[str]:
    """The V4L2 nodes of this machine with the names of their cameras, for people."""
    nodes = []
    folder = Path("/sys/class/video4linux")
    for node in sorted(folder.iterdir(), key=lambda n: (len(n.name), n.name)) if folder.is_dir() else ():
        try:
            name = (node / "name").read_text().strip()
        except OSError:
            name = ""
        nodes.append(f"/dev/{node.name} ({name})" if name else f"/dev/{node.name}")
    return nodes


def check_device(path: str) -> str:
    """The name of the camera behind a V4L2 node. Raises HopelessError, or CameraError where it is only busy."""
    there = cameras()
    others = f"there are {', '.join(there)}" if there else "this machine has no camera; splatview camera test shows " \
        "a test picture"
    try:
        if not stat.S_ISCHR(os.stat(path).st_mode):
            raise HopelessError(f"{path} is no device; {others}")
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise HopelessError(f"there is no camera {path}; {others}") from None
    except PermissionError:
        raise HopelessError(f"{path} may not be opened by you: sudo usermod -aG video $USER, and log in "
                            "again") from None
    except OSError as e:
        if e.errno in (errno.ENODEV, errno.ENXIO):
            raise HopelessError(f"{path} has no camera behind it: {e.strerror}; {others}") from None
        raise CameraError(f"{path} cannot be opened: {e.strerror}") from None
    try:
        answer = bytearray(_CAPABILITY.size)
        fcntl.ioctl(descriptor, _QUERYCAP, answer)
    except OSError as e:
        raise HopelessError(f"{path} is no V4L2 device: {e.strerror}; {others}") from None
    finally:
        os.close(descriptor)
    _, card, _, _, all_nodes, this_node = _CAPABILITY.unpack(answer)
    if not (this_node if all_nodes & _PER_NODE else all_nodes) & _CAPTURES:
        raise HopelessError(f"{path} gives no pictures (another node of the same camera may); {others}")
    return card.rstrip(b"\0").decode(errors="replace")
