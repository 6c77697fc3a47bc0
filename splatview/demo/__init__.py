"""Training 3-D Gaussians from posed views, small enough to read and quick enough for a CPU: `splatview demo`.

`trainer` is the process that trains and publishes, `command` starts it beside the viewer. Everything between is plain
torch: `rasterizer` and `compositing` draw Gaussians differentiably, `scene` makes the views that they are trained from,
`datasets` reads other people's, `density` adds and removes Gaussians.
"""
