"""Torch modules: built from a seed, kept as numpy arrays, evaluated in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from unjoined._optional import import_extra
from unjoined._typing import Array
from unjoined.errors import InputError

ModuleMaker: TypeAlias = Callable[[int], Any]
"""Takes the number of features and returns a torch module with one output."""
Weights: TypeAlias = dict[str, np.ndarray[Any, Any]]
"""A module's ``state_dict``, with numpy arrays."""
CHUNK = 8192  # rows evaluated at once: activations of that many rows stay in cache


def import_torch() -> Any:
    """Return torch, or say which extra brings it."""
    return import_extra("torch", extra="neural")


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Seed torch inside the block; afterwards its generators are where they were before."""
    torch = import_torch()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device == "cuda" else []):
        # torch.manual_seed would also reseed the devices that are not restored.
        torch.default_generator.manual_seed(seed)
        if device == "cuda":  # pragma: no cover - needs a graphics card
            torch.cuda.manual_seed(seed)
        yield


def default_network(n_features: int, n_hidden: int) -> Any:
    """Return a network of two hidden layers of ``n_hidden`` units with tanh between them."""
    nn = import_torch().nn
    return nn.Sequential(
        nn.Linear(n_features, n_hidden),
        nn.Tanh(),
        nn.Linear(n_hidden, n_hidden),
        nn.Tanh(),
        nn.Linear(n_hidden, 1),
    )


def check_maker(name: str, maker: Any) -> None:
    """Refuse what cannot make a new module at each fit; None stands for the default network."""
    if isinstance(maker, import_torch().nn.Module):
        raise InputError(
            f"{name} is a module that was made already. Pass its class, or a callable that takes "
            "the number of features and returns a new one, so that each fit starts afresh."
        )
    if maker is not None and not callable(maker):
        raise InputError(
            f"{name} must be None or a callable that takes the number of features and returns a "
            f"torch module, got {maker!r}."
        )


def build_module(maker: ModuleMaker, n_features: int, *, name: str, device: str, dtype: str) -> Any:
    """Call ``maker`` and return its module on ``device``; refuse what cannot be trained."""
    torch = import_torch()
    module = maker(n_features)
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"{name} must return a torch.nn.Module when called with the number of features, got "
            f"{type(module).__name__}."
        )
    if not any(p.requires_grad and p.numel() for p in module.parameters()):
        raise InputError(f"{name} returned a module without trainable parameters.")
    return module.to(device=device, dtype=getattr(torch, dtype))


def weights_of(module: Any) -> Weights:
    """Return a copy of the module's parameters and buffers as numpy arrays."""
    return {
        name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()
    }


def column(module: Any, Z: Any, *, name: str) -> Any:
    """Return the module's output at the rows of ``Z`` as a vector."""
    values = module(Z)
    shape = tuple(values.shape)
    if shape not in ((len(Z),), (len(Z), 1)):
        raise InputError(
            f"{name} must give one number per row, shape (n,) or (n, 1), but for {len(Z)} rows its "
            f"output has shape {shape}. End the module with a layer of one output."
        )
    return values.reshape(-1)


def evaluate_module(module: Any, Z: Any, *, name: str) -> Array:
    """Return the module's values at the rows of the tensor ``Z``, without gradients."""
    was_training = module.training
    module.eval()
    with import_torch().no_grad():
        parts = [
            column(module, Z[start : start + CHUNK], name=name).cpu().numpy()
            for start in range(0, len(Z), CHUNK)
        ]
    module.train(was_training)
    return np.concatenate(parts).astype(np.float64)
