"""Memory snapshots of PyTorch: how their files are told from others. `memory.loading` reads them."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import ZIP_MAGIC, Format, Progress, Start

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.kinds.snapshot.model import Snapshot

LEGACY_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""What the files of old `torch.save` begin with, as a pickled number."""
_SNAPSHOT = re.compile(
    rb'(?:\x80[\x02-\x05].{0,20}?|\A[{\[\s]+")(?=segments|device|address|allocat|active_size|external_annotations)'
    rb".*?(?:device_traces|total_size)", re.DOTALL)
"""The beginning of a pickle or a JSON text that holds a memory snapshot."""


def _is_snapshot(start: Start) -> bool:
    """Whether it is a pickle, also a packed one, that does not look like a checkpoint.

    Raises FileError for a snapshot that was saved in another way; the message has the command that converts it.
    """
    from splatview_viewer.kinds.snapshot.loading import is_snapshot

    head = start.head
    if start.path.is_dir():
        return False
    _check_form(start)
    if not head.startswith((b"\x80", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return False
    other = start.suffix in (".splat", ".pt", ".pth", ".ckpt") or LEGACY_MAGIC in head[:24]
    return not other and is_snapshot(start.path, head)


def _check_form(start: Start) -> None:
    head, how, load = start.head, "", ""
    name = json.dumps(start.name, ensure_ascii=False)
    if head[:4] == ZIP_MAGIC or LEGACY_MAGIC in head[:24]:
        how, load = "torch.save", f"import pickle, torch; pickle.dump(torch.load({name}, weights_only=True)"
    elif head.lstrip()[:1] in (b"{", b"["):
        how, load = "json.dump", f"import json, pickle; pickle.dump(json.load(open({name}))"
    if how and _SNAPSHOT.search(head):
        code = f'{load}, open({json.dumps(f"{start.name}.pickle", ensure_ascii=False)}, "wb"))'
        raise FileError(f"a snapshot saved by {how}: what torch.cuda.memory._dump_snapshot writes can be opened. Make "
                        f"that of it: python -c {shlex.quote(code)}")


def _read(path: Path, progress: Progress) -> Snapshot:
    from splatview_viewer.kinds.snapshot.loading import load_snapshot

    return load_snapshot(path, progress)


SNAPSHOT = Format("snapshot", (".pickle", ".pkl"), "PyTorch's memory snapshots, also packed by gzip or zstd",
                  _is_snapshot, _read)
