"""One table says what a dtype is; the tables beside it name the same dtypes."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch

from splatview_ipc.control.dtypes import DTYPES, DType
from splatview_ipc.gl.base import PICTURE_DTYPES, SHADER
from splatview_ipc.gl.buffers import TEXEL_FORMATS
from splatview_ipc.kinds.image import IMAGE_DTYPES
from splatview_ipc.kinds.rules import FLOAT_DTYPES


def test_facts_are_those_of_torch_and_numpy() -> None:
    assert get_args(DType) == tuple(DTYPES)
    for name, dtype_facts in DTYPES.items():
        dtype: torch.dtype = getattr(torch, name)
        assert (
            dtype_facts.item_size
            == dtype.itemsize
            == np.dtype(dtype_facts.numpy).itemsize
        )
        assert dtype_facts.is_float == dtype.is_floating_point
        assert dtype_facts.is_float == (name in FLOAT_DTYPES)
        if name in IMAGE_DTYPES and not dtype_facts.is_float:
            assert dtype_facts.one == torch.iinfo(dtype).max


def test_opengl_reads_each_dtype_of_images() -> None:
    assert tuple(PICTURE_DTYPES) == IMAGE_DTYPES
    assert {dtype for dtype, _ in TEXEL_FORMATS} == set(IMAGE_DTYPES)
    for dtype in PICTURE_DTYPES.values():
        assert dtype.define in SHADER
