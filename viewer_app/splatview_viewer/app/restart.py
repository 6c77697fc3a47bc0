"""The viewer starts itself anew: the same process, the same arguments, the same port, and nothing of the lost GPU.

Pages in browsers come back by themselves, runs are found again, and what the memo holds is as it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from splatview_viewer.core.errors import GraphicsError

VARIABLE = "SPLATVIEW_RESUME"
"""Environment variable by which a viewer tells the one that it becomes what it was. Not for users."""
MOST, WITHIN = 3, 60.0
"""So many times within so many seconds. The last time without CUDA's renderer, which may be what fails."""


@dataclass(frozen=True)
class Resumed:
    """What was before this viewer started; nothing, as a rule."""

    why: str = ""
    """Why it started anew; "" where it did not."""
    at: tuple[float, ...] = ()
    """When that happened of late, by the machine's monotonic clock."""
    port: int | None = None
    token: str | None = None
    """Where pages come back to, and with what."""

    @classmethod
    def take(cls) -> Resumed:
        """From the environment, in which nothing is left. What cannot be read counts as nothing."""
        text = os.environ.pop(VARIABLE, "")
        try:
            held = json.loads(text) if text else {}
            port, token = held.get("port"), held.get("token")
            return cls(str(held.get("why", "")), tuple(float(t) for t in held.get("at", ()))[-MOST:],
                       port if isinstance(port, int) and 0 < port < 65536 else None,
                       token if isinstance(token, str) else None)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls()

    @property
    def notice(self) -> str:
        """What is to be told once; "" for nothing."""
        if not self.why:
            return ""
        plain = len(self.at) == MOST
        return f"The viewer started anew: {self.why}" + ("; it draws with OpenGL now, to be safe" if plain else "")

    def again(self, why: str, now: float, port: int | None, token: str | None) -> Resumed:
        """What the next one is told. Raises GraphicsError when it would be one too many."""
        at = tuple(t for t in self.at if 0 <= now - t < WITHIN)
        if len(at) >= MOST:
            raise GraphicsError(f"{why}. The viewer started anew {MOST} times within a minute, and stays down now. "
                                "Training goes on. What the driver says: nvidia-smi, dmesg; without a graphics card: "
                                "CUDA_VISIBLE_DEVICES= splatview serve")
        return Resumed(why, (*at, now), port, token)


class Restart:
    """Ends this program and begins it again in its place."""

    def __init__(self, before: Resumed) -> None:
        self.before = before
        self.port: int | None = None
        self.token: str | None = None
        """Where pages are served now."""

    def __call__(self, why: str, now: float) -> NoReturn:
        """Nothing is given back before: a lost driver may never answer. Exits with 2 where it happened too often of
        late, or is not possible."""
        try:
            after = self.before.again(why, now, self.port, self.token)
            environment = {**os.environ, VARIABLE: json.dumps(vars(after))}
            if len(after.at) == MOST:
                environment["SPLATVIEW_RENDERER"] = "gl"
            print(f"splatview: {why}; the viewer starts anew", file=sys.stderr, flush=True)
            sys.stdout.flush()
            for entry in os.listdir("/proc/self/fd"):  # whatever a driver keeps open is not for the next one
                with suppress(OSError):  # the listing's own
                    if int(entry) > 2:
                        fcntl.fcntl(int(entry), fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
        except GraphicsError as e:
            print(f"splatview: {e}", file=sys.stderr, flush=True)
        except OSError as e:
            print(f"splatview: {why}, and the viewer cannot start anew ({e}): start it again", file=sys.stderr,
                  flush=True)
        os._exit(2)
