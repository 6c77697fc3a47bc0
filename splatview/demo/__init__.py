"""Train 3-D Gaussians from posed photographs: `splatview demo`.

Small enough to read and quick enough for a CPU. `command` starts `trainer`, the process
that trains and publishes, and the viewer beside it. `datasets` loads the photographs,
the packaged ones too, by the readers `colmap` and `transforms`, within the bounds of
`files`. `training` optimises; `rasterizer` and `compositing` draw with gradients.
"""


class DemoError(Exception):
    """An option or a data set cannot be used.

    The message tells what to do next; no traceback is needed.
    """
