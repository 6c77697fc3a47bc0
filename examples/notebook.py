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
steps = parser.parse_known_args()[0].steps  # a notebook's own arguments are let pass

y, x = torch.meshgrid(
    torch.linspace(-3, 3, 256), torch.linspace(-3, 3, 256), indexing="ij"
)


def waves(step: int) -> torch.Tensor:
    """Return the waves of two sources, (256, 256, 3), float32 in [0, 1]."""
    left, right = (
        torch.sin(8 * torch.hypot(x - side, y) - step / 5) for side in (-1, 1)
    )
    return 0.5 + 0.25 * torch.stack([left + right, 2 * left, 2 * right], -1)


splatview.publish(waves(0), "waves")

# %% The viewer, below this cell; with the kernel on another machine, type first the ssh line that it names
splatview.show(height=480)

# %% Look at them above while this runs
for step in range(steps):
    splatview.publish(waves(step), "waves", meta={"step": step})
