"""For tests with two programs: one owns GPU memory, the other opens it. References and descriptors go by a socket."""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from splatview_ipc.control.messages import FdMemory, IpcMemory, TensorRef
from splatview_ipc.cuda.memory import open_memory
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.programs import Programs

TIMEOUT = 60.0
"""Seconds for any answer: the other process imports torch and makes a context first."""

OWNER = """
import os, socket, sys
import msgspec, torch
from splatview_ipc.control.descriptors import take
from splatview_ipc.cuda.export import describe
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(60)
s.connect(sys.argv[1])
def share(tensors):
    memories, refs, undo = describe(tensors)
    fds = [fd for m in memories if hasattr(m, "pieces") for fd in take(m.token, 0, len(m.pieces))[0]]
    assert len(fds) <= 200, len(fds)
    socket.send_fds(s, [msgspec.msgpack.encode((memories, refs))], fds)
    for call in undo:
        call()
    for fd in fds:
        os.close(fd)
def say(text): s.send(text.encode())
class Next(BaseException): pass
def hear():
    text = s.recv(1 << 16).decode()
    if text.startswith("sys.argv"):  # the test that we were part of has failed
        raise Next(text)
    return text
"""


PIECES = """
import gc, traceback
def forget():  # what the last piece left behind
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
torch.zeros(1, device="cuda")
begin, space, piece = dict(globals()), {}, ""
while True:
    if not piece:
        s.settimeout(None)
        try:
            piece = s.recv(1 << 16).decode()
        except OSError:
            break
        if not piece:
            break
    s.settimeout(60)
    space = None
    forget()
    space = dict(begin)
    code, piece = piece, ""
    try:
        exec(code, space)
    except Next as e:
        piece = str(e)
    except BaseException:
        s.send(b"!" + traceback.format_exc().encode())
"""
"""A program, to follow OWNER, that runs what it is told, piece by piece (`Peer.do`)."""


class Peer:
    """The owner of GPU memory, seen from the process that opens it."""

    def __init__(self, programs: Programs, folder: Path, source: str, *args: str, begin: str = OWNER, **env: str):
        """Starts a program, `begin` and then `source`, which connects; several can be on their way at once."""
        path = str(folder / "memory.sock")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(path)
        self._server.listen(1)
        self._server.settimeout(TIMEOUT)
        self.process = programs.python("-c", begin + source, path, *args, **env)
        self._socket: socket.socket | None = None

    @property
    def socket(self) -> socket.socket:
        """The connection to it."""
        if self._socket is None:
            try:
                self._socket, _ = self._server.accept()
            except TimeoutError:
                raise AssertionError(f"the other process did not come: {self.last_words()}") from None
            self._socket.settimeout(TIMEOUT)
            self._server.close()
        return self._socket

    def do(self, code: str, *args: str) -> None:
        """Have a program of PIECES run this, with `args` as its sys.argv[2:]; what the last piece made is gone then."""
        while select.select([self.socket], [], [], 0)[0]:  # what a test that failed did not ask for
            _, fds, _, _ = socket.recv_fds(self.socket, 1 << 18, 250)
            for fd in fds:
                os.close(fd)
        self.say(f"sys.argv[2:] = {list(args)!r}\n{code}")

    def last_words(self) -> str:
        self.process.kill()
        return "".join(self.process.communicate(timeout=PATIENCE))

    def say(self, text: str = "go") -> None:
        self.socket.send(text.encode())

    def hear(self) -> str:
        return self._receive()[0].decode()

    def _receive(self) -> tuple[bytes, list[int]]:
        try:
            body, fds, _, _ = socket.recv_fds(self.socket, 1 << 18, 250)
        except TimeoutError:
            raise AssertionError(f"no answer: {self.last_words()}") from None
        assert body, f"the other process ended: {self.last_words()}"
        assert body[:1] != b"!", f"in the other process:\n{body[1:].decode()}"
        return body, fds

    def memories(self) -> tuple[list[Any], dict[str, TensorRef]]:
        """What it shares, opened; close them."""
        body, fds = self._receive()
        form = tuple[tuple[IpcMemory | FdMemory, ...], tuple[TensorRef, ...]]
        refs, tensors = msgspec.msgpack.decode(body, type=form)
        memories = []
        for ref in refs:
            count = len(getattr(ref, "pieces", ()))
            memories.append(open_memory(ref, fds[:count]))
            fds = fds[count:]
        assert not fds
        return memories, {t.name: t for t in tensors}

    def close(self) -> None:
        self._server.close()
        if self._socket is not None:
            self._socket.close()


def views(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Parts of one tensor on the CPU, of every sort of strides."""
    base = torch.arange(-20, 100, dtype=torch.float32).abs().to(dtype).reshape(6, 5, 4)
    return {"whole": base, "sliced": base[1::2, 1:, ::3], "turned": base.permute(2, 0, 1), "row": base[3],
            "repeated": base[0, 0].expand(7, 4), "one": base[2, 3, 1], "none": base[4:4]}


def tensor_of(memories: Sequence[Any], ref: TensorRef) -> torch.Tensor:
    return memories[ref.memory].tensor(ref.dtype, ref.shape, ref.strides, ref.offset)
