"""Show an image in a window of its own, which follows changes made in place.

Nothing else has to be started: the window is a process of its own, which ends with the
script.
"""

import argparse
from math import sin
from time import sleep, time

import torch

from splatview import Window

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1_000_000, help="changes of the image")
steps = parser.parse_args().steps

H = 500
W = 500

window = Window(W, H)
window.start()

y, x = torch.meshgrid(torch.linspace(0, 1, H), torch.linspace(0, 1, W), indexing="ij")
image = torch.stack([torch.zeros(H, W), x, y], -1)  # (H, W, 3), float32 in [0, 1]
if torch.cuda.is_available():
    image = image.cuda()

window.set_image(image)

try:
    while window.is_running() and steps > 0:
        image[:, :, 0] = abs(sin(time()))
        steps -= 1
        sleep(0.01)
except KeyboardInterrupt:
    pass

window.destroy()
