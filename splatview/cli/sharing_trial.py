"""Try to share an image between two processes, as programs of `splatview doctor`.

    python -m splatview.cli.sharing_trial read TRANSPORT DEVICE
    python -m splatview.cli.sharing_trial publish TRANSPORT DEVICE

`read` starts `publish`, and ends with exit status 0 if the image arrived.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.frame import StreamFrame

MODULE = "splatview.cli.sharing_trial"
_POLL_S = 0.01


def publish(transport: str, device: str) -> None:
    """Publish an image until this process is ended."""
    import splatview

    splatview.publish(_image(device), "probe", copy=transport != "in-place")
    threading.Event().wait()


def read(transport: str, device: str) -> None:
    """Read the image of another process by one transport alone, as a viewer would.

    Exits with status 0 if it arrived as it was published, else with the reason.
    """
    from splatview_ipc.subscriber.subscriber import Subscriber

    publisher = ChildProgram(MODULE, "publish", transport, device)
    with Subscriber(
        str(publisher.pid), client="doctor", transports=[transport]
    ) as subscriber:
        while publisher.is_running():
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                if stream.fault:
                    sys.exit(stream.fault)
                frame = stream.read()
                if frame is None:
                    continue
                with frame:
                    is_same = _has_image(frame)
                    if frame.intact() and is_same:
                        sys.exit(0)
                    if frame.intact():
                        sys.exit("other bytes arrived than were published")
            threading.Event().wait(_POLL_S)
    sys.exit(publisher.last_error_lines())


def _has_image(frame: StreamFrame) -> bool:
    """Return whether a frame holds the image that `publish` published."""
    import torch

    image: Any = frame.tensors["image"]
    if frame.on_gpu:
        tensor = image.torch()
        frame.wait(torch.cuda.current_stream(tensor.device).cuda_stream)
    else:
        tensor = torch.from_numpy(image.array)
    return torch.equal(tensor.cpu(), _image("cpu"))


def _image(device: str) -> torch.Tensor:
    """Return an image (64, 64, 4) uint8 of known numbers."""
    import torch

    values = torch.arange(64 * 64 * 4, device=device).remainder(251)
    return values.to(torch.uint8).view(64, 64, 4)


def _main(role: str, transport: str, device: str) -> None:
    """Run one of the two programs."""
    if role == "publish":
        publish(transport, device)
    else:
        read(transport, device)


if __name__ == "__main__":
    sys.exit(entry.run(lambda: _main(*sys.argv[1:])))
