"""Requests for the pictures of a scene that a function draws, and what came of them.

All views of a scene in this process are one viewer to the program that draws. One request
is under way at a time; views, panes and pages are served in turn.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_viewer.core.view import frame_of
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.kinds.rendered.budget import PictureBudget
from splatview_viewer.kinds.rendered.textures import PictureTextures

if TYPE_CHECKING:
    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.rendered.textures import TextureStore

_PATIENCE_S = 1.0
"""Seconds without an answer after which a picture is asked for once more; twice as long
after each time."""
_MAX_DOUBLINGS = 5
_MAX_UNANSWERED = 8
"""Requests whose late answers are still taken."""
_MAX_TRIES = 2
"""Requests without an answer after which none is expected soon."""
_TOKEN_BYTES = 16


@dataclass(frozen=True)
class PictureRequest:
    """A picture that a view wants to show."""

    camera: Camera
    loads: int
    """The least version of the scene (`RenderedContent.loads`) that it is of."""
    is_draft: bool = False
    """The camera moves: another one is wanted soon."""


class PictureArrays(NamedTuple):
    """A picture in host memory, top row first."""

    color: np.ndarray
    """(H, W, 3) uint8, or (H, W, 4) with colours multiplied by alpha."""
    depth: np.ndarray | None
    """(H, W) float32, camera z."""

    def depth_at(self, column: int, row: int) -> float:
        """Return the depth of a pixel, NaN without any."""
        return math.nan if self.depth is None else float(self.depth[row, column])


@dataclass(frozen=True)
class FunctionPicture:
    """A picture that the function has drawn."""

    request: PictureRequest
    """The request that it answers."""
    pixels: PictureArrays | PictureTextures
    """What was drawn. Depth not over 0, or not finite: nothing is there."""
    ms: float
    """Milliseconds that the function took."""
    seconds: float
    """Seconds from the request to the picture."""
    received_at: float

    @property
    def camera(self) -> Camera:
        return self.request.camera

    def answers(self, request: PictureRequest) -> bool:
        """Return whether it is what is wanted."""
        if self.request.loads < request.loads or self.camera != request.camera:
            return False
        return request.is_draft or not self.request.is_draft


class PictureInbox:
    """The request of one view, and the newest picture that came for it."""

    def __init__(self, *, is_exact: bool = False) -> None:
        """Want nothing yet.

        Args:
            is_exact: no picture is put in that may be torn.
        """
        self.is_exact = is_exact
        self.request: PictureRequest | None = None
        """None: nothing."""
        self.waiting_since = -math.inf
        self.picture: FunctionPicture | None = None
        self.has_change = False
        """Something came since the view looked last."""
        self.fault_text = ""
        """Why the function did not draw what was wanted last, in lines."""
        self._torn: FunctionPicture | None = None
        """What is shown until it comes once more."""
        self._failed: PictureRequest | None = None
        """What the function could not draw."""
        self._retry_at = -math.inf

    def want(self, request: PictureRequest, now: float) -> bool:
        """Want a picture from now on; return whether that is another one, to be drawn."""
        if request == self.request:
            return False
        if not self.is_waiting:
            self.waiting_since = now
        self.request = request
        return self.is_waiting

    def seconds_without(self, now: float) -> float:
        """Return for how long a picture has been wanted without any coming."""
        if not self.is_waiting:
            return 0.0
        if self.picture is None:
            return now - self.waiting_since
        return now - max(self.waiting_since, self.picture.received_at)

    @property
    def is_waiting(self) -> bool:
        """True while the picture that is wanted has not come."""
        if self.request is None:
            return False
        if self.picture is None or self.picture is self._torn:
            return True
        return not self.picture.answers(self.request)

    def is_due(self, now: float) -> bool:
        """Return whether the function is to be asked."""
        has_failed = self._failed is not None and self._failed == self.request
        return self.is_waiting and not (has_failed and now < self._retry_at)

    def fail(self, request: PictureRequest, fault_text: str, now: float) -> None:
        """Take note that the function could not draw; it is asked again later."""
        self._failed = request
        self.fault_text = fault_text
        self._retry_at = now + _PATIENCE_S
        self.has_change = True

    def put(self, picture: FunctionPicture) -> None:
        """Show a picture from now on."""
        self.picture = picture
        self.fault_text = ""
        self._failed = None
        self.has_change = True

    def distrust(self, picture: FunctionPicture) -> None:
        """Ask once more for a picture, which was torn."""
        self._torn = picture


class _SentRequest(NamedTuple):
    """A request that was sent."""

    inbox: PictureInbox
    request: PictureRequest
    sent_at: float


class PictureRequests:
    """Asks for the pictures of one scene's views, one at a time."""

    def __init__(
        self,
        textures: TextureStore | None = None,
        governor: Governor | None = None,
    ) -> None:
        """Ask for nothing yet.

        Args:
            textures: hold the pictures that come in GPU memory; None: none come so.
            governor: of the GPU; None: nothing is limited.
        """
        self._textures = textures
        self._token = secrets.token_hex(_TOKEN_BYTES)
        """Names this viewer of the scene to the program that draws."""
        self.budget = PictureBudget(governor or Governor(1.0), self._token)
        self._inboxes: list[PictureInbox] = []
        """The views that want pictures; the one that was served last is at the end."""
        self._requests: dict[int, _SentRequest] = {}
        """Requests without an answer, by their numbers; the last one is under way."""
        self._last_number = 0
        self.sent_at = -math.inf
        """When a request was sent last."""
        self._answered = 0
        """The highest number that has an answer."""
        self._now = 0.0

    @property
    def expects_answer(self) -> bool:
        """True while a request is under way, but not where it is one of many in vain."""
        tries = self._last_number - self._answered
        return 0 < tries <= _MAX_TRIES

    def open(self, *, is_exact: bool = False) -> PictureInbox:
        """Make an inbox for the pictures of a view; see `PictureInbox`."""
        inbox = PictureInbox(is_exact=is_exact)
        self._inboxes.append(inbox)
        return inbox

    def close(self, inbox: PictureInbox) -> None:
        """Ask for no more pictures of an inbox. Idempotent."""
        if inbox in self._inboxes:
            self._inboxes.remove(inbox)

    def next_request(self, index: int, now: float) -> Draw | None:
        """Return the request to be sent now; None: none is due.

        Args:
            index: of the stream of pictures.
            now: time of the loop, in seconds.
        """
        self._now = now
        if self._textures is not None:
            self._textures.check()
        sent_last = self._requests.get(self._last_number)
        # A slow function answers while few enough requests are outstanding.
        tries = min(self._last_number - self._answered, _MAX_DOUBLINGS)
        patience_s = _PATIENCE_S * 2.0 ** max(tries - 1, 0)
        if sent_last is not None and now < sent_last.sent_at + patience_s:
            return None
        inbox = next((inbox for inbox in self._inboxes if inbox.is_due(now)), None)
        if inbox is None or inbox.request is None:
            return None
        if not self.budget.allows(inbox.request.camera):
            return None
        self._inboxes.remove(inbox)
        self._inboxes.append(inbox)
        self._last_number += 1
        self.sent_at = now
        self._requests[self._last_number] = _SentRequest(inbox, inbox.request, now)
        if len(self._requests) > _MAX_UNANSWERED:
            del self._requests[next(iter(self._requests))]
        return Draw(
            index=index,
            viewer=self._token,
            number=self._last_number,
            camera=_drawn_camera(inbox.request.camera),
            is_draft=inbox.request.is_draft,
        )

    def take(self, frame: StreamFrame, *, is_worker: bool = False) -> bool:
        """Take an answer, perhaps to another viewer; return False if it was overwritten.

        Args:
            frame: of the stream of pictures.
            is_worker: a render worker drew it, whose GPU time counts.

        Raises:
            ViewerError: a frame of another kind.
            SharingError: a frame in GPU memory that cannot be read here.
        """
        meta = frame_of("picture", frame).meta
        if meta.get("viewer") != self._token:
            return frame.intact()
        request_number = meta["request"]
        sent = self._requests.get(request_number)
        if sent is None:
            return frame.intact()
        pixels = self._pixels_of(frame)
        if isinstance(pixels, PictureTextures) and sent.inbox.is_exact:
            self._store.finish()
        if not frame.intact():
            if isinstance(pixels, PictureTextures):
                self._store.give_back(pixels)
            return False
        self._answered = max(self._answered, request_number)
        for earlier in [n for n in self._requests if n <= request_number]:
            del self._requests[earlier]
        seconds = max(self._now - sent.sent_at, 0.0)
        if is_worker and pixels is None:
            self.budget.charge_fault()
        elif is_worker:
            # It cannot have worked longer than it took to answer.
            gpu_ms = min(float(meta.get("gpu_ms", 0.0)), seconds * 1e3)
            self.budget.charge(sent.request.camera, gpu_ms)
        if pixels is None:
            fault_text = str(meta.get("trouble", ""))
            sent.inbox.fail(sent.request, fault_text, self._now)
            return True
        picture = FunctionPicture(
            request=sent.request,
            pixels=pixels,
            ms=float(meta.get("ms", 0.0)),
            seconds=seconds,
            received_at=self._now,
        )
        if isinstance(pixels, PictureTextures):
            self._store.lend(pixels, picture)
            self._store.watch(frame.intact, partial(sent.inbox.distrust, picture))
        sent.inbox.put(picture)
        return True

    @property
    def _store(self) -> TextureStore:
        assert self._textures is not None, "pictures come in host memory alone"
        return self._textures

    def _pixels_of(self, frame: StreamFrame) -> PictureArrays | PictureTextures | None:
        """Return a copy of a frame's picture; None: it has none. Raises SharingError."""
        if "color" not in frame.tensors:
            return None
        if frame.on_gpu:
            return self._store.copy(frame)
        arrays: dict[str, np.ndarray] = {}
        for name, tensor in frame.tensors.items():
            assert isinstance(tensor, RemoteTensor)
            arrays[name] = tensor.array
        if "alpha" in arrays:
            color = np.dstack([arrays["color"], arrays["alpha"]])
        else:
            color = arrays["color"].copy()
        depth = arrays.get("depth")
        return PictureArrays(color, None if depth is None else depth.copy())


def _drawn_camera(camera: Camera) -> DrawnCamera:
    return DrawnCamera(
        width=camera.width,
        height=camera.height,
        viewmat=tuple(camera.viewmat.ravel().tolist()),
        K=tuple(camera.K.ravel().tolist()),
        model=camera.model,
        near=float(camera.near),
        far=float(camera.far),
    )
