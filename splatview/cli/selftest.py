"""What `splatview doctor` tries in processes of their own: `python -P -m splatview.cli.selftest NAME ARGUMENTS`.

Each function raises SystemExit with the reason where something does not work.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from splatview_ipc.system.child_program import ChildProgram

if TYPE_CHECKING:
    import torch


def _image(device: str) -> torch.Tensor:
    import torch

    return torch.arange(64 * 64 * 4, device=device).remainder(251).to(torch.uint8).view(64, 64, 4)


def publish(transport: str, device: str) -> None:
    """Publish an image until this process is ended."""
    import splatview

    splatview.publish(_image(device), "probe", copy=transport != "in-place")
    threading.Event().wait()


def share(transport: str, device: str) -> None:
    """Read what `publish` publishes in another process, by one transport alone, as a viewer would."""
    import torch

    from splatview_ipc import Subscriber

    writer = ChildProgram("splatview.cli.selftest", "publish", transport, device)
    with Subscriber(str(writer.pid), client="doctor", transports=[transport]) as subscriber:
        while writer.running():
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                if stream.fault:
                    sys.exit(stream.fault)
                if (frame := stream.read()) is None:
                    continue
                with frame:
                    image: Any = frame.tensors["image"]
                    tensor = image.torch() if frame.on_gpu else torch.from_numpy(image.array)
                    if frame.on_gpu:
                        frame.wait(torch.cuda.current_stream(tensor.device).cuda_stream)
                    same = torch.equal(tensor.cpu(), _image("cpu"))
                    if frame.intact():
                        sys.exit(0 if same else "other bytes arrived than were published")
            threading.Event().wait(0.01)
    sys.exit(writer.last_words())


def gsplat() -> None:
    """Draw one Gaussian."""
    import torch
    from gsplat import rasterization

    one, eye = torch.ones(1, 3, device="cuda"), torch.eye(4, device="cuda")[None]
    means = torch.tensor([[0.0, 0, 2]], device="cuda")
    quats = torch.tensor([[1.0, 0, 0, 0]], device="cuda")
    intrinsics = torch.tensor([[[9.0, 0, 4], [0, 9, 4], [0, 0, 1]]], device="cuda")
    alpha = rasterization(means, quats, one * 0.3, one[:, 0] * 0.9, one, eye, intrinsics, 8, 8)[1]
    if not 0.5 < float(alpha.max()) < 1:
        sys.exit("it draws nothing")


if __name__ == "__main__":
    from splatview_ipc.system.entry import run

    sys.exit(run(lambda: {"publish": publish, "share": share, "gsplat": gsplat}[sys.argv[1]](*sys.argv[2:])))
