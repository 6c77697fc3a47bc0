"""Pictures of the program that draws for `grab`, as they come to its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.render_requests import RenderResult

_LARGE_BYTES = 1 << 26
"""Pictures of more bytes: the memory in which they came is released at once."""


class PictureReader:
    """Copies pictures out of the program's hidden run."""

    def __init__(self, run: str) -> None:
        """Follow the run with this id."""
        self._subscriber = Subscriber(run, client="grab")
        self._copied: torch.Event | None = None
        """Recorded behind the copy of the last picture in GPU memory."""

    def read(self, result: RenderResult, gpu: int) -> torch.Tensor | None:
        """Return a copy of a picture; None if it is not there yet.

        A copy in GPU memory is queued on the current stream: see `finish_copy`.

        Args:
            result: the picture.
            gpu: the ordinal of the GPU on which to return one in GPU memory.
        """
        streams = (s for s in self._subscriber.streams if s.name == result.stream)
        stream = next(streams, None)
        if stream is None:
            return None
        stream.open()
        frame = stream.read(after=result.version - 1)
        picture: torch.Tensor | None = None
        if frame is not None:
            with frame:
                picture = self._copy(frame, result.flipped, gpu)
        if picture is None:
            if stream.fault:
                raise RuntimeError(f"grab: the picture cannot be read: {stream.fault}")
        elif picture.numel() > _LARGE_BYTES:
            stream.release()
        return picture

    def _copy(self, frame: StreamFrame, flipped: bool, gpu: int) -> torch.Tensor | None:
        """Return a copy of a picture; None if it was overwritten meanwhile."""
        import torch

        tensor = frame.tensors["image"]
        if not frame.on_gpu:
            array = tensor.array  # type: ignore[union-attr]
            rows = array[::-1] if flipped else array
            picture = torch.from_numpy(rows[..., :3].copy())
            return picture if frame.intact() else None
        source = tensor.torch()  # type: ignore[union-attr]
        colors = source[..., :3]
        stream = torch.cuda.current_stream(source.device)
        frame.wait(stream.cuda_stream)
        if flipped:
            picture = colors.flip(0)
        else:
            picture = colors.clone(memory_format=torch.contiguous_format)
        picture = picture.to(torch.device("cuda", gpu))
        self._copied = stream.record_event()
        return picture

    def finish_copy(self) -> None:
        """Wait until the last picture is copied; to be called before the next request.

        The program does not write to its memory earlier.
        """
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None

    def poll(self) -> None:
        """Take note of what the program has shared since the last call."""
        self._subscriber.poll()

    def close(self) -> None:
        """Release the memory in which pictures came. Idempotent."""
        self._subscriber.close()
