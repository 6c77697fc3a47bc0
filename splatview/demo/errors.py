"""What the demo reports to its user."""


class DemoError(Exception):
    """An option or a data set cannot be used. The message says what to do next; no traceback is needed."""
