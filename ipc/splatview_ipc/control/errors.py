"""The errors of sharing."""


class IpcError(Exception):
    """Base of every fault of the surroundings that this package reports."""


class RuntimeFolderError(IpcError):
    """The runtime folder cannot be made or written, or belongs to another user."""


class NoViewerError(IpcError):
    """A viewer that was started for a browser ended, or was not ready in time."""


class SharingError(IpcError):
    """A shared-memory segment could not be made, or what another process announced cannot be trusted."""
