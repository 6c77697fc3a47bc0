"""One frame of a stream, as `splatview.frames` gives it: the caller's own copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

    from splatview_ipc.control.frame import Frame as Shared


class Frame:
    """One version of a stream: a copy of its own, to keep and to write on.

    With `in_place=True` its CUDA tensors are the publisher's own memory instead: they change when the publisher changes
    them, and must only be read.
    `numpy.asarray(frame)`, `numpy.from_dlpack(frame)`, `torch.from_dlpack(frame)`, CuPy's and JAX's take the memory of
    `tensor` as it is.
    """

    def __init__(self, shared: Shared, tensors: dict[str, np.ndarray | torch.Tensor], skipped: int, run: str):
        self.version: int = shared.version
        """Counts the stream's updates."""
        self.time_ns: int = shared.time_ns
        """When it was published, in ns since the epoch."""
        self.skipped: int = skipped
        """How many versions were passed over since the frame before it."""
        self.run: str = run
        """The id of the run that published it."""
        self.kind: str = shared.kind
        """"image", "gaussians", "overlay", "cameras", "scalars" or "memory"."""
        self.meta: dict[str, Any] = shared.meta
        """What was published beside the tensors, and what their kind needs, such as an image's "layout"."""
        self.confirmed: bool = shared.confirmed
        """False for a copy made while nothing was published, of tensors that may have been amid a write."""
        self._copies = tensors
        self._dtypes = {name: t.dtype for name, t in shared.tensors.items()}
        self._tensors: dict[str, torch.Tensor] = {}

    @property
    def time(self) -> float:
        """When it was published, in seconds since the epoch."""
        return self.time_ns / 1e9

    @property
    def age(self) -> float:
        """Seconds since it was published."""
        from time import time

        return time() - self.time

    @property
    def on_gpu(self) -> bool:
        """Whether its tensors are on a GPU."""
        return any(hasattr(t, "is_cuda") for t in self._copies.values())

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Its tensors by name, as `splatview.publish` was given them: of an image "image"; of Gaussians "means" (N, 3),
        "quats" (N, 4), "scales" (N, 3), "opacities" (N,) and colours. CUDA tensors are on this process's device with
        the same UUID."""
        if not self._tensors:
            self._tensors = {name: _tensor(copy, self._dtypes[name]) for name, copy in self._copies.items()}
        return self._tensors

    @property
    def tensor(self) -> torch.Tensor:
        """The image, or the only tensor there is.

        An image has the shape and dtype that it was published with, (H, W), (H, W, C) or (C, H, W).
        Raises ValueError for frames of several tensors.
        """
        return self.tensors[self._only()]

    def numpy(self) -> np.ndarray:
        """Return the image, or the only tensor, as an array over the memory of `tensor`; of a CUDA frame a copy.

        Raises TypeError for bfloat16, which NumPy lacks, ValueError as `tensor` does.
        """
        name = self._only()
        if self._dtypes[name] == "bfloat16":
            raise TypeError(f"{name} is bfloat16, which NumPy lacks: use frame.tensor.float().numpy(), a float32 copy")
        copy: Any = self._copies[name]
        return copy.cpu().numpy() if hasattr(copy, "is_cuda") else copy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """For `numpy.asarray(frame)`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"the frame is {array.dtype}: as {dtype} it is a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's numbers of the device: (1, 0) is the CPU, (2, n) the nth CUDA device."""
        kind, number = self.tensor.__dlpack_device__()
        return int(kind), number

    def __dlpack__(self, **options: Any) -> Any:
        """For `numpy.from_dlpack(frame)` and others: as torch's, of `tensor`."""
        return self.tensor.__dlpack__(**options)

    def intact(self) -> bool:
        """Return True: a frame is whole, and stays as it is."""
        return True

    def close(self) -> None:
        """Let go of its memory. Idempotent."""
        self._copies, self._tensors = {}, {}

    def __enter__(self) -> Frame:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<splatview frame: {self.kind}, version {self.version}, {self.skipped} skipped>"

    def _only(self) -> str:
        names = list(self._copies)
        if not names:
            raise ValueError(f"version {self.version} was closed")
        if len(names) == 1 or "image" in names:
            return "image" if "image" in names else names[0]
        raise ValueError(f"a frame of kind {self.kind} has several tensors: use frame.tensors[name], name one of "
                         f"{', '.join(names)}")


def _tensor(copy: Any, dtype: str) -> torch.Tensor:
    import torch

    if isinstance(copy, torch.Tensor):
        return copy
    if not copy.size:
        return torch.empty(copy.shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(copy, dtype=getattr(torch, dtype)).view(copy.shape)
