"""Show what a module learns with PyTorch Lightning: one callback.

Run `splatview serve` in another terminal, before this script starts or while it runs.
At every step the callback publishes what the module's method `look` returns; the
viewer's pause button works. Needs `pip install lightning`.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import argparse
import logging

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from splatview.integrations.lightning import SplatviewCallback


class Painter(lightning.LightningModule):
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

    def forward(self, xy):
        return self.net(
            torch.cat([torch.sin(xy @ self.waves), torch.cos(xy @ self.waves)], -1)
        )

    def training_step(self, batch, batch_idx):
        xy, colors = batch
        return (self(xy) - colors).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), 2e-3)

    def look(self):
        return {"learned": self(self.positions).reshape(128, 128, 3)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000, help="steps to train")
    steps = parser.parse_args().steps
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    torch.manual_seed(0)
    xy = torch.rand(20_000, 2) * 2 - 1
    radius = xy.norm(dim=1)
    angle = torch.atan2(xy[:, 1], xy[:, 0])
    phase = 9 * radius + 3 * angle
    rings = 0.5 + 0.5 * torch.sin(phase[:, None] + torch.tensor([0.0, 2.0, 4.0]))
    loader = DataLoader(TensorDataset(xy, rings), batch_size=2000, shuffle=True)
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        callbacks=[SplatviewCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Painter(), loader)
