"""The errors of sharing."""


class IpcError(Exception):
    """Base of every fault of the surroundings that this package reports."""


class RuntimeFolderError(IpcError):
    """The runtime folder cannot be made or written, or belongs to another user."""


class NoViewerError(IpcError):
    """A viewer that was started for a browser ended, or was not ready in time."""


class SharingError(IpcError):
    """A shared-memory segment could not be made, or what another process announced cannot be trusted."""


def reason_of(error: Exception) -> str:
    """Return an error as the reason of a transport that fails, for users: in full where it was written for them, else
    its type and first line.
    """
    text = str(error)
    if isinstance(error, IpcError):
        return text
    first_line = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first_line}"
