"""The functions of the user's that a render worker calls: one draws, one makes a module."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from splatview.rendering.binding import BoundModule
from splatview.rendering.function import DrawingError
from splatview.rendering.loading import LoadedFunction, LoadingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import torch

_MAX_PRINTED = 100
"""Different faults that are printed."""


class UserFunctions:
    """The function that draws, and the one that makes the module, if there is any."""

    def __init__(self, function: str, module: str) -> None:
        """Take the names of both; nothing is imported before `refresh`.

        Args:
            function: "package.module:function".
            module: the same of the function that makes the module; "": there is none.
        """
        self._function = LoadedFunction(function)
        self._maker: LoadedFunction | None = None
        if module:
            self._maker = LoadedFunction(module)
        self._module: BoundModule | None = None
        self._fault_texts: dict[LoadedFunction, str] = {}
        """Why functions cannot be imported as their files are now; "": they can."""
        self._printed: set[str] = set()
        """Texts of faults that were printed."""

    @property
    def fault_text(self) -> str:
        """Why functions cannot be imported as their files are now; "": they can."""
        return "\n".join(filter(None, self._fault_texts.values()))

    def refresh(
        self, now: float, limited: Callable[[bool], AbstractContextManager[None]]
    ) -> bool:
        """Import what is new or has changed; return whether viewers are to be told.

        Args:
            now: the clock's seconds.
            limited: makes the context in which a module is imported, given True.
        """
        was_loaded = bool(self.fault_text) or self._function.call is not None
        is_changed = False
        for function in filter(None, (self._function, self._maker)):
            if not function.is_due(now):
                continue
            with limited(True):
                fault_text = self._load(function)
            if fault_text and fault_text == self._fault_texts.get(function, ""):
                continue
            is_changed = True
            self._module = None
            self._fault_texts[function] = fault_text
        return is_changed and (was_loaded or bool(self.fault_text))

    def _load(self, function: LoadedFunction) -> str:
        """Import a function; return why it cannot be imported, "" where it can."""
        try:
            function.load()
        except LoadingError as error:
            self.print_once(str(error))
            return str(error)
        return ""

    def require_call(self) -> Callable[..., Any]:
        """Return the function that draws.

        Raises:
            DrawingError: it could not be imported yet.
        """
        if self._function.call is None:
            raise DrawingError(self._fault_texts.get(self._function, ""))
        return self._function.call

    def subject(self, values: Mapping[str, torch.Tensor]) -> Any:
        """Return what the function draws from: the tensors, or the module over them.

        Raises:
            DrawingError: what makes the module could not be imported yet.
            TypeError, ValueError: what it makes does not suit the tensors.
        """
        if self._maker is None:
            return values
        if self._maker.call is None:
            raise DrawingError(self._fault_texts.get(self._maker, ""))
        if self._module is None:
            self._module = BoundModule(self._maker.call, self._maker.name)
        return self._module.bind(values)

    def print_once(self, text: str) -> None:
        """Print a fault, if there is one, on stderr, which the trainer prints on its own."""
        if text and text not in self._printed and len(self._printed) < _MAX_PRINTED:
            self._printed.add(text)
            print(text, file=sys.stderr, flush=True)
