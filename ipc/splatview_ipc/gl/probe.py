"""Which bridges work here, why others do not, and the choice among them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.gl.base import Bridge, Pixels, PixelSource

BRIDGES = {"direct": "direct:DirectBridge", "import": "imported:ImportBridge", "register": "registered:RegisterBridge",
           "host": "host:HostBridge"}
"""Every bridge by name, best first, and where its class is."""
VARIABLE = "SPLATVIEW_INTEROP"
"""Environment variable that forces one of BRIDGES."""

_reasons: WeakKeyDictionary[moderngl.Context, dict[str, str]] = WeakKeyDictionary()


def bridge_class(name: str, table: dict[str, str] = BRIDGES) -> Any:
    """The class of a bridge, or of another table's entry. Raises SharingError for an unknown name."""
    if name not in table:
        raise SharingError(f"{name!r} is no way from a tensor to OpenGL; legal are {', '.join(table)}")
    module, _, symbol = table[name].partition(":")
    return getattr(import_module(f"splatview_ipc.gl.{module}"), symbol)


def forced_bridge() -> str | None:
    """The bridge that SPLATVIEW_INTEROP names. Raises SharingError for a name that is none."""
    name = os.environ.get(VARIABLE) or None
    if name is not None and name not in BRIDGES:
        raise SharingError(f"{VARIABLE}={name!r}; legal are {', '.join(BRIDGES)}, or unset it")
    return name


def probe(ctx: moderngl.Context, name: str | None = None) -> dict[str, str]:
    """By bridge "" where it works with this context, or why it does not; only of `name` if given.

    Bytes really go to OpenGL and back, once for each context and bridge. `direct` is the exception: it needs another
    process's memory, so that here only its needs are looked at, and its first `put` tells.
    """
    known = _reasons.setdefault(ctx, {})
    for each in BRIDGES if name is None else (name,):
        if each not in known:
            known[each] = _trial(ctx, each)
    return {each: known[each] for each in (BRIDGES if name is None else (name,))}


def _trial(ctx: moderngl.Context, name: str) -> str:
    try:
        bridge_class(name).trial(ctx)
    except SharingError as e:
        return str(e)
    except Exception as e:  # a driver or library in a state that nobody foresaw: another bridge does the work
        return f"{type(e).__name__}: {e}"
    finally:
        GL.current().clear_errors()
    return ""


def suitable(tensor: Pixels) -> tuple[str, ...]:
    """The bridges that can take this tensor as far as it alone decides, best first."""
    memory = getattr(tensor, "memory", None)
    if memory is not None:
        return tuple(n for n in BRIDGES if n != "direct" or memory.pieces)
    if not getattr(tensor, "is_cuda", False):
        return ("host",)
    return tuple(n for n in BRIDGES if n != "direct")  # which is for another process's memory


class AutoBridge:
    """A bridge that is chosen by what is put, and changed when that cannot go on."""

    def __init__(self, ctx: moderngl.Context, forced: str | None = None) -> None:
        """Raises SharingError when `forced` or SPLATVIEW_INTEROP names no bridge."""
        self._ctx = ctx
        self._forced = forced or forced_bridge()
        if self._forced:
            bridge_class(self._forced)
        self._bridge: Bridge | None = None
        self._kind: object = None
        self._before: tuple[Bridge | None, object] | None = None  # the bridge before and its kind, until the next put
        self.reasons: dict[str, str] = {}
        """Why better bridges than the one in use were not taken, by name."""

    @property
    def name(self) -> str:
        """The bridge in use; "" before the first `put`."""
        return self._bridge.name if self._bridge is not None else ""

    def put(self, tensor: Pixels, layout: str) -> PixelSource:
        """As `Bridge.put`. Raises SharingError, with every reason, when no bridge takes the tensor."""
        self._drop_before()
        kind = type(tensor), suitable(tensor)
        if self._bridge is not None and kind == self._kind:
            try:
                return self._bridge.put(tensor, layout)
            except SharingError as e:
                self.reasons[self._bridge.name] = str(e)
        names = [n for n in suitable(tensor) if self._forced in (None, n)]
        failed: dict[str, str] = dict(self.reasons) if kind == self._kind else {}
        for name in names:
            if name in failed:
                continue
            failed[name] = probe(self._ctx, name)[name]
            if failed[name]:
                continue
            bridge: Bridge = bridge_class(name)(self._ctx)
            try:
                source = bridge.put(tensor, layout)
            except SharingError as e:
                failed[name] = str(e)
                bridge.close()
                continue
            del failed[name]
            self._before = self._bridge, self._kind
            self._bridge, self._kind, self.reasons = bridge, kind, failed
            return source
        if not names:
            failed = {str(self._forced): f"cannot take such a tensor; {', '.join(suitable(tensor))} can"}
        raise SharingError("; ".join(f"{n}: {why}" for n, why in failed.items()))

    def undo(self) -> None:
        """As `Bridge.undo`."""
        if self._before is not None and self._bridge is not None:
            self._bridge.close()
            (self._bridge, self._kind), self._before = self._before, None
        elif self._bridge is not None:
            self._bridge.undo()

    def _drop_before(self) -> None:
        before, self._before = self._before, None
        if before is not None and before[0] is not None:
            before[0].close()

    def close(self) -> None:
        self._drop_before()
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None
