"""Show tensors in a notebook: every `# %%` begins a cell.

In VS Code, with Jupytext or pasted. As a script it prints an address.

The viewer is a process of its own, so that it answers while a cell computes, and after
that.
"""

# %% An image that is published at every step
import argparse

import torch

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000, help="pictures to compute")
# A notebook's own arguments are let pass.
options, _ = parser.parse_known_args()

axis = torch.linspace(-3, 3, 256)
y, x = torch.meshgrid(axis, axis, indexing="ij")


def waves(step: int) -> torch.Tensor:
    """Return the waves of two sources, (256, 256, 3), float32 in [0, 1]."""
    left = torch.sin(8 * torch.hypot(x + 1, y) - step / 5)
    right = torch.sin(8 * torch.hypot(x - 1, y) - step / 5)
    return 0.5 + 0.25 * torch.stack([left + right, 2 * left, 2 * right], -1)


splatview.publish(waves(0), "waves")

# %% The viewer, below this cell; with the kernel on another machine, type first the ssh line that it names
splatview.show(height=480)

# %% Look at them above while this runs
for step in range(options.steps):
    splatview.publish(waves(step), "waves", meta={"step": step})
