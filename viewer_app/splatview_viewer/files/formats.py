"""Which formats there are, and how a file's content tells its format."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.errors import FileError
from splatview_viewer.files.common import open_zip
from splatview_viewer.regular import open_regular

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Format:
    """One format that can be opened."""

    name: str
    extensions: tuple[str, ...]
    description: str
    kind: str
    """"scene", "image" or "snapshot"."""


FORMATS = (
    Format("ply", (".ply",), "3D Gaussian splatting PLY (inria, gsplat), SuperSplat's compressed PLY",
           "scene"),
    Format("splat", (".splat",), "antimatter15's 32-byte records", "scene"),
    Format("spz", (".spz",), "Niantic SPZ", "scene"),
    Format("sog", (".sog", ".zip", "meta.json"), "PlayCanvas SOG: a zip, or a folder with meta.json",
           "scene"),
    Format("checkpoint", (".pt", ".pth", ".ckpt"), "checkpoints of gsplat (all ranks), inria and nerfstudio",
           "scene"),
    Format("picture", (".png", ".jpg", ".jpeg", ".webp"), "pictures", "image"),
    Format("npy", (".npy",), "an array (H, W), (H, W, C) or (C, H, W)", "image"),
    Format("snapshot", (".pickle", ".pkl"), "PyTorch's memory snapshots, also packed by gzip or zstd", "snapshot"),
)
"""Everything that `open_file` opens."""
LEGACY_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""What the files of old `torch.save` begin with, as a pickled number."""
_SNAPSHOT = re.compile(
    rb'(?:\x80[\x02-\x05].{0,20}?|\A[{\[\s]+")(?=segments|device|address|allocat|active_size|external_annotations)'
    rb".*?(?:device_traces|total_size)", re.DOTALL)
"""The beginning of a pickle or a JSON text that holds a memory snapshot."""


def formats_text() -> str:
    """The formats, one line each, for help texts and errors."""
    return "\n".join(f"  {' '.join(f.extensions):24} {f.description}" for f in FORMATS)


def recognise(path: Path) -> str:
    """The name of the format of an existing file or folder: from its content, or else from its extension.

    Raises:
        FileError: missing, empty or of no known format; the message lists the formats.
    """
    if path.is_dir():
        return _recognise_folder(path)
    try:
        with open_regular(path) as f:
            head = f.read(4096)
    except FileNotFoundError:
        raise FileError("no such file or folder") from None
    except (OSError, ValueError) as e:
        raise FileError(f"cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if not head:
        raise FileError("the file is empty")
    return _by_content(path, head) or _by_extension(path)


def _check_snapshot(path: Path, head: bytes) -> None:
    """Raise FileError for a memory snapshot that is neither a pickle nor a packed one; it says how to make it one."""
    name, how, load = json.dumps(str(path), ensure_ascii=False), "", ""
    if head[:4] == b"PK\x03\x04" or LEGACY_MAGIC in head[:24]:
        how, load = "torch.save", f"import pickle, torch; pickle.dump(torch.load({name}, weights_only=True)"
    elif head.lstrip()[:1] in (b"{", b"["):
        how, load = "json.dump", f"import json, pickle; pickle.dump(json.load(open({name}))"
    if how and _SNAPSHOT.search(head):
        code = f'{load}, open({json.dumps(f"{path}.pickle", ensure_ascii=False)}, "wb"))'
        raise FileError(f"a snapshot saved by {how}: what torch.cuda.memory._dump_snapshot writes can be opened. Make "
                        f"that of it: python -c {shlex.quote(code)}")


def _by_content(path: Path, head: bytes) -> str:
    _check_snapshot(path, head)
    if head[:3] == b"ply" and head[3:4] in (b"\n", b"\r", b" "):
        return "ply"
    if head.startswith(b"\x89PNG\r\n\x1a\n") or head.startswith(b"\xff\xd8\xff"):
        return "picture"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "picture"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if _is_snapshot(path, head):
        return "snapshot"
    if head[:4] == b"NGSP" or head[:2] == b"\x1f\x8b":
        return "spz"
    if head[:1] == b"\x80" and path.suffix.lower() != ".splat":
        return "checkpoint"  # a pickle; the reader says why it is refused
    if head[:4] == b"PK\x03\x04":
        with open_zip(path) as archive:
            names = {n.rpartition("/")[2] for n in archive.namelist()}
        if "meta.json" in names:
            return "sog"
        if "data.pkl" in names:
            return "checkpoint"
        raise FileError(f"a zip with neither meta.json (SOG) nor data.pkl (checkpoint); it holds "
                        f"{', '.join(sorted(names)[:8]) or 'nothing'}")
    if path.name == "meta.json" or (head.lstrip()[:1] == b"{" and path.suffix.lower() == ".json"):
        return "sog"
    return ""


def _is_snapshot(path: Path, head: bytes) -> bool:
    """Whether it is a pickle, also a packed one, that does not look like a checkpoint."""
    if head[:1] != b"\x80" and head[:2] != b"\x1f\x8b" and head[:4] != b"\x28\xb5\x2f\xfd":
        return False
    from splatview_viewer.memory.loading import is_snapshot

    suffix = path.suffix.lower()
    other = suffix in (".splat", ".pt", ".pth", ".ckpt") or LEGACY_MAGIC in head[:24]
    return not other and is_snapshot(path, head)


def _by_extension(path: Path) -> str:
    suffix = path.suffix.lower()
    named = next((f.name for f in FORMATS if suffix in f.extensions), "")
    if named in ("splat", "checkpoint"):  # the formats without a magic number, and the old checkpoints
        return named
    if named:
        raise FileError(f"named {suffix} but its content is none: the file is damaged or misnamed")
    raise FileError(f"of no known format. These can be opened:\n{formats_text()}")


def _recognise_folder(path: Path) -> str:
    if (path / "meta.json").is_file():
        return "sog"
    if any(path.glob("*_rank*.pt")) or any(path.glob("ckpts/*_rank*.pt")):
        return "checkpoint"
    raise FileError("a folder without meta.json (SOG) and without checkpoints named *_rank*.pt")
