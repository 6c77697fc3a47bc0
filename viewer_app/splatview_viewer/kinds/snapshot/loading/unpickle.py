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


PEEK = 1 << 18
"""Bytes at the beginning of a packed file that are enough to unpack some: a block of zstd's takes up to 128 KiB."""
MAX_WINDOW = 1 << 27


class RefusedError(FileError):
    """The pickle asks for more than containers and scalars."""


class SnapshotUnpickler(pickle.Unpickler):
    """Makes containers, texts and numbers, and nothing else: a pickle that asks for anything else is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedError(f"refused: the pickle asks for {module[:60]}.{name[:60]}; a memory snapshot holds only "
                           "mappings, lists, texts and numbers. Nothing of it was run")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RefusedError("refused: the pickle asks for objects stored elsewhere; a memory snapshot holds only "
                           "mappings, lists, texts and numbers. Nothing of it was run")


class Counted(io.RawIOBase):
    """A stream that says how far it has been read, and that ends with an error where it becomes too long."""

    def __init__(self, inner: BinaryIO, limit: int, told: Callable[[int], None]) -> None:
        super().__init__()
        self.inner, self.limit, self.told = inner, limit, told
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            n = self.inner.readinto(view)  # type: ignore[attr-defined]
        self.count += n
        if self.count > self.limit:
            raise FileError(f"made to exhaust memory: unpacked it is more than {self.limit:,} bytes")
        self.told(self.count)
        return n


def is_pickle(head: bytes) -> bool:
    """True if a file that begins so is a pickle of protocol 2 to 5."""
    return len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def is_packed(head: bytes) -> bool:
    """True for a file that begins as gzip or zstd do."""
    return head[:2] == GZIP or head[:4] == ZSTD


def begins_as_pickle(path: Path) -> bool:
    """True if the content of a packed file begins as a pickle; only its beginning is unpacked."""
    with open(path, "rb") as f:
        head = f.read(PEEK)
    if head[:2] == GZIP:
        import zlib

        try:
            return is_pickle(zlib.decompressobj(31).decompress(head, 16))
        except zlib.error:
            return False
    import zstandard

    try:
        return is_pickle(zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(head).read(16))
    except zstandard.ZstdError:
        return False


def unpacked_limit(path: Path) -> int:
    """Return the bytes of pickle that a file may hold. Raises OSError."""
    size = path.stat().st_size
    with open_regular(path) as f:
        return max(BOMB_BYTES, PLAIN_RATIO * size) if is_packed(f.read(4)) else size


def unpickle(path: Path, told: Callable[[float], None] = lambda fraction: None) -> tuple[Any, int]:
    """Return what a pickle holds, plain or packed, and its bytes when unpacked. Nothing that it asks for is called.

    Args:
        told: called with how far it is, 0 to 1.

    Raises:
        FileError: damaged, or refused.
    """
    limit, size = unpacked_limit(path), path.stat().st_size
    with open(path, "rb", buffering=0) as f:
        head = f.read(4)
        f.seek(0)
        inner: Any = f
        errors: tuple[type[Exception], ...] = (EOFError,)
        if head[:2] == GZIP:
            import gzip
            import zlib

            inner = gzip.GzipFile(fileobj=io.BufferedReader(f, 1 << 18), mode="rb")  # type: ignore[arg-type]
            errors += (zlib.error, gzip.BadGzipFile)
        elif head == ZSTD:
            import zstandard

            inner = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(f, read_across_frames=True)
            errors += (zstandard.ZstdError,)
        stream = Counted(inner, limit, lambda count: told((f.tell() if inner is not f else count) / max(size, 1)))
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
