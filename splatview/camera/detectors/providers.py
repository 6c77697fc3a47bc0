"""What onnxruntime runs a network on: the best that is there and works."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from splatview.camera.detectors.base import DetectorError
from splatview_ipc.system.files import make_private
from splatview_ipc.system.optional_packages import install_line, needed

PROVIDERS = {"tensorrt": "TensorrtExecutionProvider", "cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
"""By their names here, the fastest first."""
_SAID = {"tensorrt": "TensorRT", "cuda": "CUDA", "cpu": "CPU"}


def session(path: Path, provider: str = "") -> tuple[Any, str]:
    """An onnxruntime session for a file, and what it runs on, for people.

    `provider`: one of PROVIDERS, "" for the fastest that works. Raises DetectorError.
    """
    if provider and provider not in PROVIDERS:
        raise DetectorError(f"provider is {provider!r}, not one of {', '.join(PROVIDERS)}")
    with needed(f"detecting with {path.name} needs", "onnxruntime", error=DetectorError):
        import onnxruntime
    there = onnxruntime.get_available_providers()
    wanted = [provider] if provider else [name for name, full in PROVIDERS.items() if full in there]
    if provider and PROVIDERS[provider] not in there:
        raise DetectorError(f"this onnxruntime has no provider {provider}, only {', '.join(there)}: "
                            f"{install_line('camera-gpu')} in place of onnxruntime")
    # It writes a page of its own about each provider that does not load; what matters of that is said below.
    onnxruntime.set_default_logger_severity(4)
    if wanted != ["cpu"]:
        _load_libraries(onnxruntime)
    passed: list[str] = []
    for name in wanted:
        try:
            made = _made(onnxruntime, path, name)
        except Exception as e:  # whatever a library finds wrong with a file, or with itself
            reason = " ".join(str(e).split())[:300]
        else:
            if made.get_providers()[0] == PROVIDERS[name]:
                for line in passed:
                    print(line, file=sys.stderr)
                return made, _SAID[name]
            reason = "its libraries do not load (CUDA 12 or 13 with cuDNN 9; for TensorRT, TensorRT as well)"
        passed.append(f"not on {_SAID[name]}: {reason}")
    raise DetectorError(f"{path} cannot be run: {'; '.join(passed)}")


def threads() -> int:
    """How many threads look for things on the CPU: one processor is left to what captures and shows."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def _made(onnxruntime: Any, path: Path, name: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads()
    # Threads that spin while they wait take the processor from those who capture and show.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    providers: list[Any] = [PROVIDERS[name]]
    if name == "tensorrt":
        _load_tensorrt()
        print("TensorRT makes an engine of the network: minutes the first time, then it is kept", file=sys.stderr)
        providers = [(PROVIDERS[name], {"trt_engine_cache_enable": "1", "trt_engine_cache_path": _engines()}),
                     PROVIDERS["cuda"]]
    if name != "cpu":
        providers.append(PROVIDERS["cpu"])  # for the operations that the GPU has none for
    return onnxruntime.InferenceSession(str(path), options, providers=providers, enable_fallback=0)


def _engines() -> str:
    """The folder in which TensorRT keeps its engines."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache, "splatview", "engines")
    make_private(folder)
    return str(folder)


def _load_libraries(onnxruntime: Any) -> None:
    """CUDA's libraries from wherever pip has put them: onnxruntime itself looks only where the system does."""
    preload = getattr(onnxruntime, "preload_dlls", None)
    if preload is None:
        return
    try:
        with contextlib.redirect_stdout(sys.stderr):
            preload()
    except Exception as e:
        print(f"CUDA's libraries: {e}", file=sys.stderr)


def _load_tensorrt() -> None:
    """Its library, so that a machine without it is not told to wait for it. Raises OSError or ImportError."""
    try:
        ctypes.CDLL("libnvinfer.so.10", ctypes.RTLD_GLOBAL)
    except OSError:
        importlib.import_module("tensorrt")  # from pip, which loads its library from its own folder
