"""The bytes of a pickle: plain, gzip or zstd, never more of them than a real snapshot would hold."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import BOMB_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PLAIN_RATIO = 256
"""How much larger than the file its content may be: snapshots, which repeat themselves, shrink by 10 to 60."""
MAX_WINDOW = 1 << 27


class SnapshotUnpickler(pickle.Unpickler):
    """Makes containers, texts and numbers, and nothing else: a pickle that asks for anything else is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise FileError(f"refused: the pickle asks for {module[:60]}.{name[:60]}; a memory snapshot holds only "
                        "mappings, lists, texts and numbers. Nothing of it was run")

    def persistent_load(self, pid: Any) -> NoReturn:
        self.find_class("objects", "stored elsewhere")


class Counted(io.RawIOBase):
    """A stream that reports how far it has been read, and that ends with an error where it becomes too long."""

    def __init__(self, inner: Any, limit: int, told: Callable[[int], None]) -> None:
        super().__init__()
        self.inner, self.limit, self.told = inner, limit, told
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = self.inner.readinto(buffer)
        self.count += n
        if self.count > self.limit:
            raise FileError(f"made to exhaust memory: unpacked it is more than {self.limit:,} bytes")
        self.told(self.count)
        return n


def is_packed(head: bytes) -> bool:
    """True for a file that begins as gzip or zstd do."""
    return head[:2] == GZIP or head[:4] == ZSTD


def begins_as_pickle(path: Path) -> bool:
    """True if the content of a file, plain or packed, begins as a pickle of protocol 2 to 5."""
    with open(path, "rb", buffering=0) as f:
        content, errors = _content(f)
        try:
            head = content.read(2)
        except errors:
            return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def unpacked_limit(path: Path) -> int:
    """Return the bytes of pickle that a file may hold. Raises OSError."""
    with open_regular(path) as f:
        size = path.stat().st_size
        return max(BOMB_BYTES, PLAIN_RATIO * size) if is_packed(f.read(4)) else size


def unpickle(path: Path, told: Callable[[float], None] = lambda fraction: None) -> tuple[Any, int]:
    """Return what a pickle holds, plain or packed, and its bytes when unpacked. Nothing that it asks for is called.

    Args:
        told: called with how far it is, 0 to 1.

    Raises:
        FileError: damaged, or refused.
    """
    limit, size = unpacked_limit(path), max(path.stat().st_size, 1)
    with open(path, "rb", buffering=0) as f:
        content, errors = _content(f)
        stream = Counted(content, limit, lambda count: told((count if content is f else f.tell()) / size))
        try:
            return SnapshotUnpickler(io.BufferedReader(stream, 1 << 20)).load(), stream.count
        except (FileError, MemoryError):
            raise
        except errors as e:
            raise FileError(f"truncated or damaged: {e or 'it ends early'}") from None
        except OSError:
            raise
        except Exception as e:  # a damaged pickle ends in errors of any kind
            raise FileError(f"a damaged pickle: {type(e).__name__}: {str(e)[:200]}") from None


def _content(f: BinaryIO) -> tuple[Any, tuple[type[Exception], ...]]:
    """The unpacked bytes of a file, as a stream, and the errors of one that is damaged."""
    head = f.read(4)
    f.seek(0)
    if head[:2] == GZIP:
        import gzip
        import zlib

        return gzip.GzipFile(fileobj=io.BufferedReader(f, 1 << 18)), (  # type: ignore[arg-type]
            EOFError, zlib.error, gzip.BadGzipFile)
    if head == ZSTD:
        import zstandard

        unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return unpacker.stream_reader(f, read_across_frames=True), (EOFError, zstandard.ZstdError)
    return f, (EOFError,)
