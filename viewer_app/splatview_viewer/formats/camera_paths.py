"""Camera paths as nerfstudio's viewer writes them and `ns-render camera-path` reads
them; the pictures of their films.

Format: nerfstudio/viewer/render_panel.py (`_write_json`) and
nerfstudio/cameras/camera_paths.py (`get_path_from_json`), version 1.1. Matrices are
camera to world, row by row, in OpenGL axes (x right, y up, z backward); fields of view
are vertical, in degrees, and mean the focal length of a perspective camera, whatever
the type is. The first viewer wrote the matrices of keyframes as text, column by column
(three.js), and how long the whole takes.

A film is written as a folder of PNGs, or an mp4.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.system.files import output_error, output_file, take_free_name
from splatview_ipc.system.optional_packages import importing, require
from splatview_viewer.core.errors import CameraError, FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import check_json
from splatview_viewer.formats.pictures import (
    check_writable,
    make_output_folder,
    save_picture,
)
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import field_of_view, focal_length
from splatview_viewer.geometry.path import (
    MAX_FRAMES,
    MAX_KEYS,
    MAX_PICTURES,
    SECONDS,
    CameraPath,
    Keyframe,
)
from splatview_viewer.geometry.poses import FAR, read_pose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splatview_viewer.geometry.cameras import CameraModel

FILE_LIMIT = 64 << 20
"""Bytes of a file; two hours of pictures take 60 MB."""
LEAST_FOV = 0.09
MOST_FOV = 179.4
"""Degrees of a field of view that are read: a little more than are written, which are
rounded."""
_MODELS: dict[str, CameraModel] = {"perspective": "pinhole", "fisheye": "fisheye"}
_FLIP = np.diag([1.0, -1.0, -1.0])
"""Between OpenGL's axes of a camera and OpenCV's."""
NEEDED = "an mp4, unlike a folder of PNGs, needs"
"""Subject of the error for a missing PyAV."""
_QUALITY = "18"
"""Of x264 (its CRF): nothing is seen of the loss."""


@dataclass(frozen=True)
class Film:
    """A path, and how it is to be filmed."""

    path: CameraPath
    width: int = 1920
    height: int = 1080
    fps: float = 30.0


def write_path(film: Film) -> str:
    """Return the JSON text. Raises CameraError for a film of too many pictures."""
    check_length(film, MAX_FRAMES, "a file of its path")
    return json.dumps(path_values(film))


def check_length(film: Film, most: int = MAX_PICTURES, what: str = "a film") -> None:
    """Raise CameraError for a film of more pictures than `what` may have, before
    anything is made of them.
    """
    count = film.path.frame_count(film.fps)
    if count > most:
        raise CameraError(
            f"path: {film.path.duration:,.0f} s at {film.fps:g} pictures a second are "
            f"{count:,} pictures; "
            f"{what} may have {most:,}. Make it shorter, or have fewer a second"
        )


def path_values(film: Film, *, frames: bool = True) -> dict[str, Any]:
    """Return what the JSON text holds.

    frames: one for each picture of the film as well.
    """
    path = film.path

    def pose(rotation: np.ndarray, position: np.ndarray) -> list[float]:
        matrix = np.eye(4)
        matrix[:3, :3] = rotation @ _FLIP
        matrix[:3, 3] = position
        return matrix.ravel().tolist()

    def written_fov(fov: float) -> float:
        return field_of_view(focal_length(fov, film.height, path.model), film.height)

    aspect = film.width / film.height
    pictures = []
    for i in range(path.frame_count(film.fps) if frames else 0):
        camera = path.camera_at(i / film.fps, film.width, film.height)
        fov = field_of_view(float(camera.K[1, 1]), film.height)
        pictures.append(
            {
                "camera_to_world": pose(camera.viewmat[:3, :3].T, camera.position),
                "fov": fov,
                "aspect": aspect,
            }
        )
    return {
        "default_fov": written_fov(path.keys[0].fov) if path.keys else 50.0,
        "default_transition_sec": SECONDS,
        "keyframes": [
            {
                "matrix": pose(rotations.matrix(key.rotation), key.position),
                "fov": written_fov(key.fov),
                "aspect": aspect,
                "override_transition_enabled": True,
                "override_transition_sec": key.seconds,
            }
            for key in path.keys + path.keys[-1:] * (path.holds_last and not path.loop)
        ],
        "camera_type": "fisheye" if path.model == "fisheye" else "perspective",
        "render_height": film.height,
        "render_width": film.width,
        "fps": film.fps,
        "seconds": path.duration,
        "is_cycle": path.loop,
        "smoothness_value": 0.0 if path.smooth else 1.0,
        "camera_path": pictures,
    }


def read_path(file: Path) -> Film:
    """Return the path in a file.

    Raises CameraError, which names the file, where it holds none.
    """
    try:
        with open_regular(file) as f:
            text = f.read(FILE_LIMIT + 1)
    except OSError as e:
        raise CameraError(f"path: {file} cannot be read: {e.strerror or e}") from None
    if len(text) > FILE_LIMIT:
        raise CameraError(
            f"path: {file} has more than {FILE_LIMIT >> 20} MB; a camera path has less"
        )
    try:
        return parse_path(text)
    except CameraError as e:
        raise CameraError(f"{file}: {e}") from None


def parse_path(text: str | bytes) -> Film:
    """Return the path in a JSON text; that of its keyframes, if it has any, otherwise
    that of its frames, one by one.

    Raises CameraError for anything else.
    """
    try:
        check_json(len(text), "the numbers of a camera path")
        return _film(json.loads(text))
    except FileError as e:
        raise CameraError(f"path: {e}") from None
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RecursionError,
        ArithmeticError,
    ) as e:
        raise CameraError(
            f"path: no JSON, or not as nerfstudio writes it ({type(e).__name__}: "
            f"{e!s:.200})"
        ) from e


def _film(d: Any) -> Film:
    keys, frames = (
        d.get(name) if isinstance(d, dict) else None
        for name in ("keyframes", "camera_path")
    )
    if not any(isinstance(found, list) and found for found in (keys, frames)):
        raise CameraError(
            'path: neither "keyframes" nor "camera_path" is there, as nerfstudio '
            "writes them"
        )
    kind = str(d.get("camera_type", "perspective")).lower()
    if kind not in _MODELS:
        raise CameraError(
            f"path: camera_type is {kind!r:.40}; legal are {', '.join(_MODELS)}"
        )
    model = _MODELS[kind]
    width, height = (
        int(_read_float(d, name, default, 1, 16384))
        for name, default in (("render_width", 1920), ("render_height", 1080))
    )
    fps = _read_float(d, "fps", 30.0, 0.01, 1000)
    between = _read_float(d, "default_transition_sec", SECONDS, 0.001, 3600)
    loop = d.get("is_cycle") is True
    if isinstance(keys, list) and keys:
        if len(keys) > MAX_KEYS:
            raise CameraError(f"path: {len(keys)} keyframes; {MAX_KEYS} are the most")
        path = CameraPath([_key(k, d, between, model) for k in keys], loop, model=model)
        path.smooth = _read_float(d, "smoothness_value", 0.0, -1e9, 1e9) < 1.0
        # The first viewer names the length of the whole alone.
        has_transitions = "default_transition_sec" in d or any(
            "override_transition_sec" in key for key in keys
        )
        if not has_transitions:
            path.stretch(
                _read_float(d, "seconds", path.duration or between, 0.001, 1e6)
            )
        return Film(path, width, height, fps)
    keys = _frames(frames or (), d, 1 / fps, model)
    return Film(
        CameraPath(keys, False, False, model, holds_last=True), width, height, fps
    )


def _frames(
    frames: Sequence[Any], whole: dict[str, Any], between: float, model: CameraModel
) -> list[Keyframe]:
    """Return a key for each picture of a path, all matrices at once."""
    if len(frames) > MAX_FRAMES:
        raise CameraError(
            f"path: {len(frames)} pictures without keyframes; {MAX_FRAMES} are the "
            "most. "
            "Write the path with its keyframes, or in parts"
        )
    matrices = _matrices(frames)
    if matrices is None:
        # One by one, which reads other forms and tells what is wrong with the first
        # that is.
        name = "camera_to_world"
        return [_key(frame, whole, between, model, name) for frame in frames]
    keys = []
    positions = matrices[:, :3, 3].copy()
    quaternions = rotations.quaternions(matrices[:, :3, :3] @ _FLIP)
    for frame, position, rotation in zip(frames, positions, quaternions, strict=True):
        seconds = _seconds(frame, between)
        fov = _fov(frame, whole, model)
        keys.append(Keyframe(position, rotation, fov, seconds))
    return keys


def _matrices(frames: Sequence[Any]) -> np.ndarray | None:
    """Return the matrices (N, 4, 4) of pictures; None where one of them has another
    form, or is none.
    """
    try:
        values = [frame["camera_to_world"] for frame in frames]
        matrices = np.asarray(values, np.float64).reshape(len(frames), 4, 4)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    is_near = (np.abs(matrices) < FAR).all(axis=(1, 2))
    is_by_rows = ~matrices[:, 3, :3].any(axis=1)
    valid = is_near & is_by_rows & rotations.are_rotations(matrices[:, :3, :3])
    return matrices if valid.all() else None


def _key(
    d: Any,
    whole: dict[str, Any],
    between: float,
    model: CameraModel,
    name: str = "matrix",
) -> Keyframe:
    if not isinstance(d, dict):
        raise CameraError(f"path: {d!r:.60} is no keyframe")
    matrix = read_pose(d.get(name), f'path: "{name}"')
    rotation = rotations.quaternion(matrix[:3, :3] @ _FLIP)
    seconds = _seconds(d, between)
    fov = _fov(d, whole, model)
    return Keyframe(matrix[:3, 3].copy(), rotation, fov, seconds)


def _seconds(d: dict[str, Any], between: float) -> float:
    """Return the seconds from a keyframe to the next."""
    if d.get("override_transition_enabled") is not True:
        return between
    return _read_float(d, "override_transition_sec", between, 0.001, 3600)


def _fov(d: dict[str, Any], whole: dict[str, Any], model: CameraModel) -> float:
    """Return the field of view of a keyframe, in degrees; of all, where it has none."""
    default = _read_float(whole, "default_fov", 50.0, LEAST_FOV, MOST_FOV)
    fov = _read_float(d, "fov", default, LEAST_FOV, MOST_FOV)
    return _fisheye_fov(fov) if model == "fisheye" else fov


def _fisheye_fov(fov: float) -> float:
    """Return the angle that an equidistant camera shows with the focal length that
    nerfstudio makes of a field of view: half the height by the tangent of its half, for
    every type of camera.
    """
    return field_of_view(focal_length(fov, 2), 2, "fisheye")


def _read_float(
    d: dict[str, Any], name: str, default: float, low: float, high: float
) -> float:
    value = d.get(name, default)
    value = default if value is None else value
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not low <= value <= high
    ):
        raise CameraError(
            f'path: "{name}" is {value!r:.40}, not a number from {low:g} to {high:g}'
        )
    return float(value)


# -- the pictures of a film ------------------------------------------------------------


def is_mp4(out: Path) -> bool:
    """Return whether a film of this name is one file; else it is a folder of PNGs."""
    return out.suffix.lower() in (".mp4", ".m4v", ".mov")


class PngFolder:
    """000000.png and so on, in a folder."""

    def __init__(self, out: Path, numbered: bool = False) -> None:
        self._count = 0
        if out.suffix and not numbered and not out.is_dir():
            raise FileError(
                f"{out}: films are written as .mp4, or as PNGs into a folder; "
                f"{out.suffix!r} is neither"
            )
        with _named(out):
            self.out = take_free_name(out, Path.mkdir) if numbered else out
            self._made = numbered or not self.out.exists()
            make_output_folder(self.out)
            taken = next(self.out.glob("[0-9]*.png"), None)
        if taken is not None:
            raise FileError(
                f"{self.out}: there are pictures already ({taken.name}); name an empty "
                "folder"
            )

    def add(self, picture: np.ndarray) -> None:
        """(H, W, 3 or 4) uint8, top row first; the fourth is alpha, not multiplied into
        the colours.
        """
        save_picture(picture, self.out / f"{self._count:06}.png")
        self._count += 1

    def close(self) -> None:
        """Nothing: every picture is whole."""

    def abort(self) -> None:
        """Pictures that are there stay: they are whole.

        A folder without any, made for them, goes.
        """
        if self._made:
            with contextlib.suppress(OSError):
                self.out.rmdir()


class Mp4:
    """H.264, by PyAV.

    Sides are made even by leaving out a row or column. The film is whole, and of a
    numbered one the name is known, after `close`; `abort` leaves nothing of it.
    """

    def __init__(
        self, out: Path, width: int, height: int, fps: float, numbered: bool = False
    ) -> None:
        with importing(f"{out}: {NEEDED}", "av", error=FileError):
            import av
        self.out = out
        self._av: Any = av
        self._size = width // 2 * 2, height // 2 * 2
        if min(self._size) < 2:
            raise FileError(
                f"{out}: a film of {width}x{height} pixels is too small; 2x2 is the "
                "least"
            )
        with _named(out), contextlib.ExitStack() as opened:
            self._output = opened.enter_context(output_file(out, numbered=numbered))
            self._file: Any = opened.enter_context(
                av.open(self._output.file, "w", format="mp4")
            )
            best = "libx264" in av.codecs_available
            self._stream: Any = self._file.add_stream(
                "libx264" if best else "mpeg4",
                rate=Fraction(fps).limit_denominator(1001),
            )
            if best:
                self._stream.codec_context.options = {
                    "crf": _QUALITY,
                    "preset": "medium",
                }
            else:
                self._stream.codec_context.options = {"qscale": "2"}
            self._stream.width, self._stream.height = self._size
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.color_range = 1
            self._opened = opened.pop_all()

    def add(self, picture: np.ndarray) -> None:
        width, height = self._size
        frame = self._av.VideoFrame.from_ndarray(
            np.ascontiguousarray(picture[:height, :width, :3]), format="rgb24"
        )
        with _named(self.out):
            self._file.mux(self._stream.encode(frame))

    def close(self) -> None:
        with _named(self.out), self._opened:  # an exception removes the film
            self._file.mux(self._stream.encode(None))
        self.out = self._output.path

    def abort(self) -> None:
        self._output.keep = False
        with contextlib.suppress(OSError):
            self._opened.close()


Writer = PngFolder | Mp4
"""Takes pictures one by one."""


def check_film(out: Path) -> None:
    """Raise FileError for a film that cannot be written: before the scene is read and
    drawn.
    """
    if is_mp4(out):
        require(f"{out}: {NEEDED}", "av", error=FileError)
        check_writable(out)
    else:
        PngFolder(out).abort()


def make_writer(
    out: Path,
    width: int,
    height: int,
    fps: float,
    transparent: bool,
    numbered: bool = False,
) -> Writer:
    """By the name: .mp4, or a folder for PNGs, which is made.

    `numbered`: take the next free name where the film exists; default: an mp4 is
    replaced, a folder with pictures refused. Raises FileError when it cannot be written
    there, or when the one does not go with transparency.
    """
    if is_mp4(out):
        if transparent:
            raise FileError(
                f"{out}: an mp4 cannot be transparent; name a folder, for PNGs"
            )
        return Mp4(out, width, height, fps, numbered)
    return PngFolder(out, numbered)


@contextlib.contextmanager
def _named(out: Path) -> Iterator[None]:
    """Raise OSErrors, of which kind PyAV's own are, as FileErrors that name the film."""
    try:
        yield
    except OSError as e:
        raise FileError(str(output_error(out, e))) from e
