"""The process of the sandbox, for the program that reads memory snapshots until that is a function of the sandbox."""

from splatview_viewer.formats.sandbox import ReadingProgram

__all__ = ["ReadingProgram"]
