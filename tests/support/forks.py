"""Forked children of a test's process."""

from __future__ import annotations

import os
import traceback
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child; AssertionError where it raises there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is what is tested
        child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child ended with {status}"
