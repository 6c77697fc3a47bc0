"""What the demo reports to its user."""

_MOST = 3000
"""Characters of a message, which may repeat what a damaged file holds."""


class DemoError(Exception):
    """An option or a data set cannot be used. The message says what to do next; no traceback is needed."""

    def __init__(self, text: str) -> None:
        clipped = text if len(text) <= _MOST else f"{text[:_MOST]} ..."
        super().__init__(clipped.encode("utf-8", "replace").decode())
