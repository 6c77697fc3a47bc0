"""The process of the sandbox, for the program that reads memory snapshots until that is a function of the sandbox."""

from splatview_viewer.files.sandbox import ReadingProgram

__all__ = ["ReadingProgram"]
