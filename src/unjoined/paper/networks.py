"""Torch modules for the min-max problem: built from a seed, trained, kept as arrays, evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from unjoined._support import import_extra
from unjoined._typing import Array, IntArray
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
    with torch.random.fork_rng(
        devices=[torch.cuda.current_device()] if device == "cuda" else []
    ):
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


def checked_conjugate(loss: Any) -> Callable[[Any], Any] | None:
    """Return the conjugate a user gave, checked; None for the squared loss."""
    if isinstance(loss, str) and loss == "squared":
        return None
    if not callable(loss):
        raise InputError(
            "loss must be 'squared' or the convex conjugate of a loss, a callable on tensors; got "
            f"{loss!r}."
        )
    _check_convex(loss)
    return cast("Callable[[Any], Any]", loss)


def _check_convex(conjugate: Callable[[Any], Any]) -> None:
    """Refuse a function that is not elementwise, not convex, or not finite at 0."""
    # It may be infinite outside of an interval around 0, as those of robust losses are.
    torch = import_torch()
    grid = torch.linspace(-8.0, 8.0, 513, dtype=torch.float64)
    values = conjugate(grid)
    if not isinstance(values, torch.Tensor) or values.shape != grid.shape:
        given = (
            tuple(values.shape) if hasattr(values, "shape") else type(values).__name__
        )
        raise InputError(
            "loss must map a tensor to a tensor of the same shape, element by element; for shape "
            f"{tuple(grid.shape)} it gave {given}."
        )
    v = values.detach().numpy()
    g = grid.numpy()
    finite = np.isfinite(v)
    if np.isnan(v).any() or (v == -np.inf).any() or not finite[len(v) // 2]:
        raise InputError(
            "loss must be the convex conjugate of a loss: finite at 0 and nowhere NaN or -inf. At "
            f"0 it is {v[len(v) // 2]:g}."
        )
    # On an even grid, convexity of every pair's midpoint follows from that of neighbours.
    with np.errstate(invalid="ignore"):
        bend = v[:-2] + v[2:] - 2.0 * v[1:-1]
    tolerance = 1e-12 * (1.0 + np.abs(v[finite]).max())
    wrong = np.flatnonzero(bend < -tolerance)
    inside = np.flatnonzero(finite)
    hole = np.flatnonzero(~finite[inside[0] : inside[-1] + 1])
    if len(wrong) or len(hole):
        at = g[1:-1][wrong[0]] if len(wrong) else g[inside[0] + hole[0]]
        raise InputError(
            f"loss must be the convex conjugate of a loss, but it is not convex near g = {at:g}. "
            "For rho(r) = r**2 pass lambda g: g**2 / 4."
        )


def build_module(maker: ModuleMaker, n_features: int, *, name: str, device: str) -> Any:
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
    return module.to(device=device, dtype=torch.float32)


def weights_of(module: Any) -> Weights:
    """Return a copy of the module's parameters and buffers as numpy arrays."""
    return {
        name: value.detach().cpu().numpy().copy()
        for name, value in module.state_dict().items()
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


@dataclass(frozen=True, slots=True)
class SaddleRows:
    """Tensors of rows, ordered by cell: treatments of 1, 2, outcomes of 1, 2."""

    Z: Any  # (n, d)
    signed: Any  # (n,) share * sign * label
    share: Any  # (n,) each cell adds up to 1/2
    sizes: tuple[int, ...]  # rows in each of the four cells

    @property
    def n_treatment(self) -> int:
        """How many rows carry treatments; they are the first."""
        return self.sizes[0] + self.sizes[1]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows set aside, and the risk to be made small on them as a function of f's values."""

    Z: Any  # (m, d)
    risk: Callable[[Array], float]


@dataclass(frozen=True, slots=True)
class SaddleSettings:
    """How to train; see `NeuralMinMaxUplift` for what each means."""

    learning_rate: float
    max_epochs: int
    batch_size: int | None = None  # None: all rows in every step
    patience: int | None = None  # None: all epochs
    ridge_f: float = 0.0
    ridge_g: float = 0.0
    averaging: float = 0.0
    momentum: float = 0.5
    conjugate: Callable[[Any], Any] | None = None  # None: squared loss, the paper's J


@dataclass(frozen=True, slots=True)
class SaddleFit:
    """What training found, and the record of how it went."""

    uplift: Weights
    critic: Weights
    objective: Array  # (n_epochs,) mean over the epoch's batches, without the penalties
    risk: Array  # (n_epochs,) held-out; empty if nothing was held out
    best_epoch: int  # counted from 1; its weights are the ones returned


def train_saddle(
    f: Any,
    g: Any,
    rows: SaddleRows,
    settings: SaddleSettings,
    *,
    rng: np.random.RandomState,
    held: HeldOut | None = None,
    on_epoch: Callable[[int, float, float], None] | None = None,
) -> SaddleFit:
    """Train the modules, which are changed, and return the weights of the best epoch.

    One epoch passes over the largest cell once. Without held-out rows the last epoch is the best.
    """
    players = _Players(f, g, settings)
    objective: list[float] = []
    risk: list[float] = []
    best_epoch = 1
    best = players.averaged()
    for epoch in range(1, settings.max_epochs + 1):
        objective.append(_run_epoch(players, rows, settings, rng))
        _refuse_divergence(objective[-1], epoch, settings.learning_rate)
        candidate = players.averaged()
        if held is not None:
            with players.showing(candidate):
                risk.append(held.risk(evaluate_module(f, held.Z, name="uplift_module")))
            _refuse_divergence(risk[-1], epoch, settings.learning_rate)
        if held is None or risk[-1] <= min(risk):
            best_epoch, best = epoch, candidate
        if on_epoch is not None:
            on_epoch(epoch, objective[-1], risk[-1] if risk else np.nan)
        if settings.patience is not None and epoch - best_epoch >= settings.patience:
            break
    players.put(best)
    return SaddleFit(
        weights_of(f), weights_of(g), np.array(objective), np.array(risk), best_epoch
    )


class _Players:
    """Both modules' parameters as views of one vector, moved by one optimistic Adam update.

    Optimism (Daskalakis et al., 2018) steps along ``2 d_t - d_{t-1}`` instead of ``d_t``, the
    direction the other player's answer is about to turn to. The second moment never shrinks
    (AMSGrad, Reddi et al., 2018): plain Adam speeds up again as the gradient fades and leaves
    the saddle point it had reached.
    """

    decay_2, epsilon = 0.999, 1e-8

    def __init__(self, f: Any, g: Any, settings: SaddleSettings) -> None:
        torch = import_torch()
        self.f = f
        self.g = g
        self.settings = settings
        of_f, of_g = (
            [p for p in module.parameters() if p.requires_grad] for module in (f, g)
        )
        self.parameters = [*of_f, *of_g]
        self.theta = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        start = 0
        for p in self.parameters:
            p.data = self.theta[start : start + p.numel()].view_as(p)
            start += p.numel()
        n_f = sum(p.numel() for p in of_f)
        self.sign = torch.ones_like(self.theta)
        self.sign[n_f:] = -1.0  # the critic climbs
        self.decay = torch.full_like(self.theta, 2.0 * settings.ridge_f)
        self.decay[n_f:] = 2.0 * settings.ridge_g
        self.n_steps = 0
        self.first, self.second, self.largest, self.average, self.previous = (
            torch.zeros_like(self.theta) for _ in range(5)
        )

    def step(self, batch: SaddleRows) -> Any:
        """Move both players by one batch; return the objective there, without penalties."""
        torch = import_torch()
        value = _payoff(self.f, self.g, batch, self.settings)
        slopes = torch.autograd.grad(value, self.parameters, allow_unused=True)
        flat = torch.cat(
            [
                (torch.zeros_like(p) if slope is None else slope).reshape(-1)
                for p, slope in zip(self.parameters, slopes, strict=True)
            ]
        )
        # The penalties' slope goes through the same preconditioner as the payoff's, so that a
        # resting point solves the stated problem; decay outside of it would solve another one.
        self._move(flat.mul_(self.sign).addcmul_(self.decay, self.theta))
        return value.detach()

    def _move(self, slope: Any) -> None:
        torch = import_torch()
        self.n_steps += 1
        t, b_1, b_2 = self.n_steps, self.settings.momentum, self.decay_2
        self.first.mul_(b_1).add_(slope, alpha=1.0 - b_1)
        self.second.mul_(b_2).addcmul_(slope, slope, value=1.0 - b_2)
        torch.maximum(self.largest, self.second, out=self.largest)
        root = (self.largest / (1.0 - b_2**t)).sqrt_().add_(self.epsilon)
        direction = (self.first / (1.0 - b_1**t)).div_(root)
        step = direction if t == 1 else 2.0 * direction - self.previous
        self.theta.sub_(step, alpha=self.settings.learning_rate)
        self.previous = direction
        keep = self.settings.averaging
        self.average.mul_(keep).add_(self.theta, alpha=1.0 - keep)

    def averaged(self) -> list[Any]:
        """Return the running average of the weights, and the buffers as they are."""
        weight = 1.0 - self.settings.averaging**self.n_steps
        buffers = [b.clone() for b in self._buffers()]
        return [self.average / weight if self.n_steps else self.theta.clone(), *buffers]

    def put(self, state: list[Any]) -> None:
        """Set the modules to a state that `averaged` returned."""
        for tensor, value in zip([self.theta, *self._buffers()], state, strict=True):
            tensor.copy_(value)

    @contextmanager
    def showing(self, state: list[Any]) -> Iterator[None]:
        """Set the modules to a state for a while."""
        before = [tensor.clone() for tensor in (self.theta, *self._buffers())]
        self.put(state)
        yield
        self.put(before)

    def _buffers(self) -> list[Any]:
        return [*self.f.buffers(), *self.g.buffers()]


def _payoff(f: Any, g: Any, batch: SaddleRows, settings: SaddleSettings) -> Any:
    """Return the estimate of the objective from one batch, without the penalties."""
    n = batch.n_treatment
    f_values = column(
        f, batch.Z[:n], name="uplift_module"
    )  # outcome rows do not need f
    g_values = column(g, batch.Z, name="critic_module")
    cross = (batch.signed[:n] * f_values * g_values[:n]).sum()
    linear = (batch.signed[n:] * g_values[n:]).sum()
    if settings.conjugate is None:
        return (
            2.0 * cross - 4.0 * linear - 0.5 * (batch.share * g_values.square()).sum()
        )
    return (
        cross - 2.0 * linear - 0.5 * (batch.share * settings.conjugate(g_values)).sum()
    )


def _run_epoch(
    players: _Players,
    rows: SaddleRows,
    settings: SaddleSettings,
    rng: np.random.RandomState,
) -> float:
    players.f.train()
    players.g.train()
    values = [
        players.step(batch) for batch in row_batches(rows, settings.batch_size, rng)
    ]
    # One look per epoch: asking for every step's value would stall a graphics card.
    return float(import_torch().stack(values).mean())


def row_batches(
    rows: SaddleRows, batch_size: int | None, rng: np.random.RandomState
) -> Iterator[SaddleRows]:
    """Yield batches with rows of all four cells, a quarter from each."""
    # A cell counts half of its kind whatever its size, so equal numbers from each are the best
    # use of a batch. Smaller cells come round more often. Rows keep their share, times cell size
    # over rows drawn: the batch's objective has the objective over all rows as its mean.
    torch = import_torch()
    sizes = rows.sizes
    quarter = max(sizes) if batch_size is None else max(1, batch_size // 4)
    if quarter >= max(sizes):
        yield rows
        return
    n_batches = -(-max(sizes) // quarter)
    drawn = [min(quarter, n) for n in sizes]
    starts = np.cumsum([0, *sizes[:-1]])
    order = np.hstack(
        [
            start + _in_turn(n, n_batches * m, rng).reshape(n_batches, m)
            for start, n, m in zip(starts, sizes, drawn, strict=True)
        ]
    )
    factor = torch.as_tensor(
        np.repeat(np.divide(sizes, drawn), drawn),
        dtype=rows.share.dtype,
        device=rows.share.device,
    )
    for positions in torch.as_tensor(order, device=rows.share.device):
        yield SaddleRows(
            rows.Z[positions],
            rows.signed[positions] * factor,
            rows.share[positions] * factor,
            tuple(drawn),
        )


def _in_turn(n: int, n_draws: int, rng: np.random.RandomState) -> IntArray:
    """Return ``n_draws`` positions below n: one random order after another."""
    rounds = [rng.permutation(n) for _ in range(-(-n_draws // n))]
    return np.concatenate(rounds)[:n_draws].astype(np.int64)


def _refuse_divergence(value: float, epoch: int, learning_rate: float) -> None:
    if not np.isfinite(value):
        raise InputError(
            f"training diverged: the objective is {value} in epoch {epoch}. Lower learning_rate "
            f"(now {learning_rate:g}), or raise ridge_f and ridge_g. With a loss of your own, see "
            "that the critic stays where its conjugate is finite."
        )
