"""Training 3-D Gaussians from posed photographs, small enough to read and quick enough for a CPU: `splatview demo`.

`command` starts `trainer`, the process that trains and publishes, and the viewer beside it. `datasets` reads the
photographs, the packaged ones too, from COLMAP and nerfstudio folders within the bounds of `files`. `training`
optimises; `rasterizer` and `compositing` draw with gradients.
"""


class DemoError(Exception):
    """An option or a data set cannot be used. The message tells what to do next; no traceback is needed."""
