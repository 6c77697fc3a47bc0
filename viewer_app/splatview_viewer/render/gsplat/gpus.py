"""The GPUs that the CUDA renderer can draw on."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import moderngl


def obstacle() -> str:
    """Return why the CUDA renderer cannot run here, in one line; "" where it can.

    Loads torch only where there is a GPU.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "gsplat needs CUDA, and there is no NVIDIA driver here"
    count = ctypes.c_int()
    has_failed = cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0
    if has_failed or count.value == 0:
        return (
            "gsplat needs CUDA, and no GPU is visible (see nvidia-smi and "
            "CUDA_VISIBLE_DEVICES)"
        )
    import torch

    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        return "gsplat needs CUDA, and this torch is built without it"
    return "gsplat needs CUDA, and torch finds no usable GPU"


def home_gpu(ctx: moderngl.Context | None) -> int:
    """Return the ordinal of the GPU that OpenGL draws with, if CUDA knows it; otherwise 0."""
    from splatview_ipc.control.errors import SharingError
    from splatview_ipc.cuda.driver import find_device
    from splatview_ipc.gl.glapi import gl_device_uuid

    if ctx is None:
        return 0
    try:
        uuid = gl_device_uuid(ctx)
        if uuid is None:
            return 0
        return find_device(uuid) or 0
    except SharingError:
        return 0
