"""The viewer starts itself anew: the same process, the same arguments, the same port, and nothing of the lost GPU.

Pages in browsers come back by themselves, runs are found again, and what the memo holds is as it was.
"""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import msgspec

VARIABLE = "SPLATVIEW_RESUME"
"""Environment variable with the state for the viewer that follows. Not for users."""
MOST, WITHIN = 3, 60.0
"""So many times within so many seconds. The last time without CUDA's renderer, which may be what fails."""


class Resumed(msgspec.Struct, frozen=True):
    """The state of the viewer that became this one; empty, as a rule."""

    why: str = ""
    """Why it started anew; "" where it did not."""
    at: tuple[float, ...] = ()
    """When that happened of late, by the machine's monotonic clock."""
    port: Annotated[int, msgspec.Meta(gt=0, lt=65536)] | None = None
    token: str | None = None
    """Port and token to which pages come back."""

    @property
    def notice(self) -> str:
        """A message that is shown once; "" for none."""
        if not self.why:
            return ""
        plain = len(self.at) >= MOST
        return f"The viewer started anew: {self.why}" + ("; it draws with OpenGL now, to be safe" if plain else "")


class Restart:
    """Ends this program and begins it again in its place."""

    def __init__(self) -> None:
        """Takes what was before from the environment, in which nothing is left. What cannot be read counts as nothing.
        """
        self.before = Resumed()
        with suppress(msgspec.MsgspecError, RecursionError):
            self.before = msgspec.json.decode(os.environ.pop(VARIABLE, "{}"), type=Resumed)
        self.port, self.token = self.before.port, self.before.token
        """Port and token of the pages now."""

    def __call__(self, why: str, now: float) -> NoReturn:
        """Nothing is given back before: a lost driver may never answer. Exits with 2 where it happened too often of
        late, or is not possible."""
        at = *(t for t in self.before.at if 0 <= now - t < WITHIN), now
        try:
            if len(at) <= MOST:
                after = msgspec.json.encode(Resumed(why, at, self.port, self.token)).decode()
                environment = {**os.environ, VARIABLE: after}
                if len(at) == MOST:
                    environment["SPLATVIEW_RENDERER"] = "gl"
                print(f"splatview: {why}; the viewer starts anew", file=sys.stderr, flush=True)
                sys.stdout.flush()
                for entry in os.listdir("/proc/self/fd"):  # whatever a driver keeps open is not for the next one
                    with suppress(OSError):  # the listing's own
                        if int(entry) > 2:
                            fcntl.fcntl(int(entry), fcntl.F_SETFD, fcntl.FD_CLOEXEC)
                os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
            why += (f". The viewer started anew {MOST} times within a minute, and stays down now. Training goes on. "
                    "What the driver says: nvidia-smi, dmesg; without a graphics card: "
                    "CUDA_VISIBLE_DEVICES= splatview serve")
        except OSError as e:
            why += f", and the viewer cannot start anew ({e}): start it again"
        print(f"splatview: {why}", file=sys.stderr, flush=True)
        os._exit(2)
