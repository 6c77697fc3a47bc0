"""Show what a model learns with Hugging Face's Trainer: one callback.

Run `splatview serve` in another terminal, before this script starts or while it runs.
At every step the callback publishes what the model's method `look` returns; the
viewer's pause button works. Needs `pip install transformers accelerate`.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import StackDataset
from transformers import Trainer, TrainingArguments

from splatview.integrations.transformers import SplatviewCallback


class Painter(nn.Module):
    """A small network: from positions (N, 2) in -1..1 to colours (N, 3)."""

    def __init__(self):
        super().__init__()
        self.waves = nn.Parameter(6 * torch.randn(2, 64), requires_grad=False)
        self.net = nn.Sequential(
            nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3), nn.Sigmoid()
        )
        side = torch.linspace(-1, 1, 128)
        self.positions = nn.Parameter(
            torch.cartesian_prod(side, side), requires_grad=False
        )

    def forward(self, xy, labels=None):
        phases = xy @ self.waves
        colors = self.net(torch.cat([torch.sin(phases), torch.cos(phases)], -1))
        if labels is None:
            return {"colors": colors, "loss": None}
        return {"colors": colors, "loss": (colors - labels).square().mean()}

    def look(self):
        return {"learned": self(self.positions)["colors"].reshape(128, 128, 3)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000, help="steps to train")
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    xy = torch.rand(20_000, 2) * 2 - 1
    radius = xy.norm(dim=1)
    angle = torch.atan2(xy[:, 1], xy[:, 0])
    phase = 9 * radius + 3 * angle
    rings = 0.5 + 0.5 * torch.sin(phase[:, None] + torch.tensor([0.0, 2.0, 4.0]))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=2000,
            learning_rate=2e-3,
            lr_scheduler_type="constant",
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        Trainer(
            Painter(),
            arguments,
            train_dataset=StackDataset(xy=xy, labels=rings),  # type: ignore[arg-type]
            callbacks=[SplatviewCallback()],
        ).train()
