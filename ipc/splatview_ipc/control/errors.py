"""The errors of sharing, as one small tree.

IpcError
├── RuntimeFolderError   the folder in which runs are found cannot be used
├── NoViewerError        no viewer for a browser could be started
└── SharingError         shared memory could not be made, opened or trusted
"""


class IpcError(Exception):
    """Base of every fault of the surroundings that this package reports."""


class RuntimeFolderError(IpcError):
    """The runtime folder cannot be made or written, or belongs to another user."""


class NoViewerError(IpcError):
    """A viewer that was started for a browser ended, or was not ready in time."""


class SharingError(IpcError):
    """A shared-memory segment could not be made, or what another process announced cannot be trusted."""
