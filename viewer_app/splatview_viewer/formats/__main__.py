"""The child process of the sandbox: `python -m splatview_viewer.formats JOB`."""

import sys

from splatview_viewer.formats.sandbox import serve

if __name__ == "__main__":
    serve(sys.argv[1])
