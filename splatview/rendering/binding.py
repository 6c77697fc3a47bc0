"""Modules whose parameters and buffers are the trainer's own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class BoundModule:
    """A module that the user's function makes, over published tensors."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        """Make the module.

        Args:
            make: the user's function.
            name: its name, for users.

        Raises:
            TypeError: what it returns is no module.
        """
        module = make()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"{name} returned an object of type {type(module).__name__}; expected a "
                "torch.nn.Module with the names that were published"
            )
        self.module = module.eval()
        self._name = name
        parameters = dict(module.named_parameters(remove_duplicate=False))
        buffers = dict(module.named_buffers(remove_duplicate=False))
        self._parameters = set(parameters)
        self._names = {*parameters, *buffers}
        self._bound: Mapping[str, torch.Tensor] = {}

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """Return the module with these as its parameters and buffers.

        Costs nothing where it has them already, by the same mapping. Raises ValueError where the names differ.
        """
        if tensors is self._bound:
            return self.module
        missing = sorted(self._names - tensors.keys())
        unknown = sorted(tensors.keys() - self._names)
        if missing or unknown:
            raise ValueError(
                f"the module of {self._name} and what was published differ: not "
                f"published {_listed(missing)}; not in the module {_listed(unknown)}"
            )
        for name, tensor in tensors.items():
            path, _, leaf = name.rpartition(".")
            owner = self.module.get_submodule(path)
            # Its shape may be another than before, as after a densification.
            if name in self._parameters:
                value = torch.nn.Parameter(tensor, requires_grad=False)
                owner.register_parameter(leaf, value)
            else:
                setattr(owner, leaf, tensor)
        self._bound = tensors
        return self.module


def _listed(names: list[str]) -> str:
    if len(names) > 5:
        return f"{', '.join(names[:5])} and {len(names) - 5} more"
    return ", ".join(names) or "nothing"
