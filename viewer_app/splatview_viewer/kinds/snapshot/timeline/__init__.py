"""Layout of the pictures of a trace, and the painting of their columns of pixels.

    bands = Bands(trace)                                   # slow for long traces: on a worker thread
    axis = Axis(trace, "events")
    canvas = Canvas(1920, 1000)
    moments = bands.peaks(axis.edges(0, axis.extent[1], canvas.width))
    bands.paint(canvas, slice(0, 960), moments, 0.0, bands.live.max() / canvas.height, paint)

Only `compiled.warm_up` imports numba, and loads the kernels or has them compiled.
"""
