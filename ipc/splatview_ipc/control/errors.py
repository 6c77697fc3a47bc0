"""The errors of sharing."""


class IpcError(Exception):
    """Base of every fault of the surroundings that this package reports."""


class RuntimeFolderError(IpcError):
    """The runtime folder cannot be made or written, or belongs to another user."""


class NoViewerError(IpcError):
    """A viewer that was started for a browser ended, or was not ready in time."""


class SharingError(IpcError):
    """Memory could not be shared, or what another process announced is not valid."""


def reason_of(error: Exception) -> str:
    """Return an error as the reason why a transport fails, for users.

    Errors of this package are written for users, and come in full; of others the type
    and the first line.
    """
    text = str(error)
    if isinstance(error, IpcError):
        return text
    first_line = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first_line}"
