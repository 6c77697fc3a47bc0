"""Serve a ball of Gaussians by viser: `python -m benchmarks.browser.viser_scene COUNT`.

viser, of PyPI, sends the Gaussians to its page as covariances, without harmonics.
Commands: port: of the server; page, port=: connect a program that takes what comes as
its page does, and return the seconds from connecting until it has the Gaussians.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import torch
import viser  # type: ignore[import-not-found]
import zstandard  # type: ignore[import-not-found]
from websockets.asyncio.client import connect  # type: ignore[import-not-found]
from websockets.typing import Subprotocol  # type: ignore[import-not-found]

from benchmarks import harness
from benchmarks.gpu.scenes import SH_C0, ball

if TYPE_CHECKING:
    import numpy as np

_PATIENCE_S = 120.0


def _covariances(quats: torch.Tensor, log_scales: torch.Tensor) -> np.ndarray:
    """Return (N, 3, 3)."""
    w, x, y, z = torch.nn.functional.normalize(quats, dim=1).unbind(1)
    rows = [
        torch.stack(
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
        ),
        torch.stack(
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
        ),
        torch.stack(
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
        ),
    ]
    rotations = torch.stack(rows).permute(2, 0, 1)
    halves = rotations * log_scales.exp()[:, None]
    return (halves @ halves.transpose(1, 2)).numpy()


class ViserScene:
    """viser's server with a scene."""

    def __init__(self, gaussians: int) -> None:
        scene = ball(gaussians, "cpu")
        self._server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
        self._server.scene.add_gaussian_splats(
            "/scene",
            centers=scene["means"].numpy(),
            covariances=_covariances(scene["quats"], scene["scales"]),
            rgbs=(scene["sh0"][:, 0] * SH_C0 + 0.5).clamp(0, 1).numpy(),
            opacities=scene["opacities"].sigmoid()[:, None].numpy(),
        )

    def do_port(self) -> dict[str, Any]:
        return {"port": self._server.get_port()}

    def do_page(self, port: int) -> dict[str, Any]:
        return asyncio.run(_take_scene(port))


async def _take_scene(port: int) -> dict[str, Any]:
    """Return the seconds until a page has the Gaussians, and their number."""
    decompressor = zstandard.ZstdDecompressor()
    started_at = time.monotonic()
    async with connect(
        f"ws://127.0.0.1:{port}",
        subprotocols=[Subprotocol(f"viser-v{viser.__version__}")],
        compression=None,
        max_size=None,
    ) as socket:
        async with asyncio.timeout(_PATIENCE_S):
            async for data in socket:
                assert isinstance(data, bytes)
                plain_size, packed_size = struct.unpack_from("<QQ", data)
                body = decompressor.decompress(
                    data[16 : 16 + packed_size], max_output_size=plain_size
                )
                for message in msgspec.msgpack.decode(body)["messages"]:
                    if message["type"] == "GaussianSplatsMessage":
                        return {"seconds": time.monotonic() - started_at}
    raise RuntimeError("viser's server sent no Gaussians")


if __name__ == "__main__":
    # `reply` has the other to itself.
    sys.stdout = sys.stderr
    harness.serve_requests(ViserScene(int(sys.argv[1])))
