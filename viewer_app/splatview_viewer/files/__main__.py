"""The child process of the sandbox: `python -m splatview_viewer.files JOB`."""

import sys

from splatview_viewer.files.sandbox import serve

if __name__ == "__main__":
    serve(sys.argv[1])
