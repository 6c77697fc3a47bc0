"""What finds things in pictures: a network in ONNX, OpenCV's people detector, a function of the user's.

`base` has the protocol, `choice.open_detector` makes the one that is asked for.
"""
