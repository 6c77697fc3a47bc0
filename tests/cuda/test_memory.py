"""GPU memory of others that is not what was said of it: refused, and CUDA goes on."""

from __future__ import annotations

import os
import random
import socket

import pytest
import torch
from support.meters import MB, open_files
from support.programs import Programs
from support.trainers import Trainer

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory
from splatview_ipc.cuda import driver, memory

pytestmark = pytest.mark.cuda


def test_forged_memory_is_refused_and_cuda_goes_on(programs: Programs) -> None:
    """Handles of nothing, descriptors of something else, other sizes than the memory's, a GPU that is not here."""
    torch.zeros(1, device="cuda")
    trainer = Trainer(programs)
    handle, size = trainer.do("""
from splatview_ipc.cuda.export import describe
t = torch.zeros(30 << 20, dtype=torch.uint8, device="cuda")
(ref,), _, _ = describe({"t": t})
answer = [ref.handle.hex(), ref.size]
""")
    gpu = driver.gpu_uuid(0)
    unknown = "f" * 32
    luck = random.Random(0)
    own = memory.Allocation(2 * MB, 0)
    ends = socket.socketpair()
    pipe = os.pipe()
    before = torch.cuda.mem_get_info()[0]
    files = open_files()
    forged: list[tuple[FdMemory | IpcMemory, list[int]]] = [
        (IpcMemory(bytes.fromhex(handle), 2 * size, gpu), [])
    ]
    forged += [
        (IpcMemory(nothing, 4096, gpu), [])
        for nothing in (
            bytes(64),
            b"\xff" * 64,
            *(luck.randbytes(64) for _ in range(20)),
        )
    ]
    forged += [
        (FdMemory("t-1", (2 * MB,), gpu), [fd])
        for fd in (
            os.open("/dev/null", os.O_RDWR),
            os.dup(pipe[0]),
            os.memfd_create("splatview-x"),
            os.dup(ends[0].fileno()),
        )
    ]
    for pieces in ((4 * MB,), (2 * MB, 2 * MB), (1,), (limits.MAX_SEGMENT,), (3 * MB,)):
        more = [os.open("/dev/null", os.O_RDWR) for _ in pieces[1:]]
        forged.append((FdMemory("t-1", pieces, gpu), [own.fd(), *more]))
    forged += [
        (FdMemory("t-1", (2 * MB,), unknown), [own.fd()]),
        (IpcMemory(bytes(64), 4096, unknown), []),
    ]
    for ref, fds in forged:
        opened = memory.open_memory(ref, fds)
        with pytest.raises(
            SharingError, match="not visible" if ref.gpu == unknown else "."
        ):
            opened.pointer()
        opened.close()
        torch.cuda.synchronize()
        assert int(torch.ones(5, device="cuda").sum()) == 5, ref
    assert open_files() <= files
    assert torch.cuda.mem_get_info()[0] >= before - 32 * MB
    own.close()
    for one in ends:
        one.close()
    for end in pipe:
        os.close(end)
