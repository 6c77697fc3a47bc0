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
    """Refuse handles of nothing, descriptors of something else, and other sizes.

    And memory of a GPU that is not here.
    """
    torch.zeros(1, device="cuda")
    trainer = Trainer(programs)
    handle, size = trainer.do("""
from splatview_ipc.cuda.export import share_tensors
t = torch.zeros(30 << 20, dtype=torch.uint8, device="cuda")
(ref,), _, _ = share_tensors({"t": t})
answer = [ref.handle.hex(), ref.size]
""")
    gpu = driver.gpu_uuid(0)
    unknown = "f" * 32
    generator = random.Random(0)
    exported_memory = memory.ExportableMemory(2 * MB, 0)
    ends = socket.socketpair()
    pipe = os.pipe()
    free_before, _ = torch.cuda.mem_get_info()
    files = open_files()
    handles = [bytes(64), b"\xff" * 64]
    handles += [generator.randbytes(64) for _ in range(20)]
    other_fds = [
        os.open("/dev/null", os.O_RDWR),
        os.dup(pipe[0]),
        os.memfd_create("splatview-x"),
        os.dup(ends[0].fileno()),
    ]
    forged: list[tuple[FdMemory | IpcMemory, list[int]]] = [
        (IpcMemory(bytes.fromhex(handle), 2 * size, gpu), [])
    ]
    forged += [(IpcMemory(forged_handle, 4096, gpu), []) for forged_handle in handles]
    forged += [(FdMemory("t-1", (2 * MB,), gpu), [fd]) for fd in other_fds]
    for pieces in ((4 * MB,), (2 * MB, 2 * MB), (1,), (limits.MAX_SEGMENT,), (3 * MB,)):
        further_fds = [os.open("/dev/null", os.O_RDWR) for _ in pieces[1:]]
        forged.append(
            (FdMemory("t-1", pieces, gpu), [exported_memory.fd(), *further_fds])
        )
    forged += [
        (FdMemory("t-1", (2 * MB,), unknown), [exported_memory.fd()]),
        (IpcMemory(bytes(64), 4096, unknown), []),
    ]
    for ref, fds in forged:
        opened = memory.open_memory(ref, fds)
        message = "not visible" if ref.gpu == unknown else "."
        with pytest.raises(SharingError, match=message):
            opened.pointer()
        opened.close()
        torch.cuda.synchronize()
        assert int(torch.ones(5, device="cuda").sum()) == 5, ref
    assert open_files() <= files
    free_after, _ = torch.cuda.mem_get_info()
    assert free_after >= free_before - 32 * MB
    exported_memory.close()
    for end in ends:
        end.close()
    for fd in pipe:
        os.close(fd)
