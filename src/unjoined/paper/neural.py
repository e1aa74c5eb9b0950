"""The paper's objective for torch modules, and what surrounds their training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._support import LOGGER, PROGRESS
from unjoined._typing import Array, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_count,
    check_not_negative,
    check_positive,
    check_share,
)
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    check_verbose,
    fit_pair,
    one_of,
    optional,
)
from unjoined.evaluate.scores import weighted_values
from unjoined.model.basis import Scaling
from unjoined.paper.networks import (
    HeldOut,
    ModuleMaker,
    SaddleRows,
    SaddleSettings,
    Weights,
    build_module,
    check_maker,
    checked_conjugate,
    default_network,
    evaluate_module,
    import_torch,
    seeded,
    train_saddle,
)

MOMENTUM = 0.9  # of Adam's mean slope: it smooths small batches
# Memory of the running average over steps that is used instead of the last weights, which keep
# circling around the saddle point.
AVERAGING = 0.99


def _check_validation_share(name: str, value: Any) -> None:
    if check_share(name, value, zero_allowed=True) == 1.0:
        raise InputError(
            "validation_share must be below 1: something must be trained on."
        )


def _check_loss(name: str, value: Any) -> None:
    checked_conjugate(value)


class NeuralMinMaxUplift(UpliftEstimator):
    r"""Uplift from separate labels by a min-max game of two torch modules.

    The objective is the paper's (see `MinMaxUplift`), for any differentiable functions f and g of
    parameters :math:`\theta_f, \theta_g`,

    .. math::

        \min_f \max_g \; 2 E[w f g] - 4 E[z g] - E[g^2]
        + \lambda_f \|\theta_f\|^2 - \lambda_g \|\theta_g\|^2,

    trained by optimistic Adam steps on batches that hold rows of all four tables.

    Parameters
    ----------
    uplift_module, critic_module : callable or None, default=None
        A `torch.nn.Module` class, or any callable, that takes the number of features and returns
        a module with one output per row, shape (n,) or (n, 1). None is a network of two hidden
        layers with tanh.
    n_hidden : int, default=64
        Units in each hidden layer of the default network.
    loss : "squared" or callable, default="squared"
        The loss :math:`\rho` of the residual :math:`\mu_w f - 2 \mu_z`. A callable is its convex
        conjugate :math:`\rho^*`, on tensors, element by element; then :math:`E[w f g] - 2 E[z g]
        - E[\rho^*(g)]` is played. Residuals are in units of the standardised outcome. Where
        :math:`\rho^*` is infinite the critic must not go: bound the output of ``critic_module``.
    ridge_f, ridge_g : float, default=3e-4
        Penalties on the squared norm of all parameters of either module, biases included. With
        the squared loss those of `MinMaxUplift`, which divides its ``ridge_g`` by 4 for other
        losses.
    learning_rate : float, default=1e-3
        Step length of both players.
    batch_size : int or None, default=512
        Rows per step, a quarter from each table; None takes all rows in every step.
    max_epochs : int, default=200
        At most so many passes over the largest table.
    validation_share : float, default=0.2
        Share of each table held out to choose the epoch; 0 trains on all rows to the last epoch.
    patience : int or None, default=30
        Stop after so many epochs without a better held-out risk; None never stops early.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where torch computes; "auto" takes a graphics card if there is one.
    verbose : bool or int, default=False
        Whether to show on stderr what the logger ``unjoined`` is told: 1 shows the steps of a fit,
        2 how far each of them is.
    random_state : int, RandomState or None, default=None
        Seed for weights, batches and the held-out rows. On a CPU the same seed gives the same
        bits with the same number of threads. Torch's own generator is left as it was.

    Attributes
    ----------
    uplift_weights_, critic_weights_, uplift_module_, critic_module_ : dict, torch.nn.Module
        Parameters and buffers of the best epoch as arrays, and modules with them, made anew at
        each access.
    n_epochs_, best_epoch_ : int
        Epochs trained, and the one whose weights were kept, counted from 1.
    history_ : dict of str to array, one number for each epoch
        "objective" and "held_out_risk" of every epoch, in squared units of the standardised
        outcome; the second is empty if nothing was held out.
    scaling_, outcome_scale_ : Scaling and float
        What features were scaled by, and outcome units per unit of the modules' output.
    identification_, populations_, n_features_in_, feature_names_in_
        As in `MinMaxUplift`.

    See Also
    --------
    MinMaxUplift : the same objective on a fixed basis, in closed form: exact and faster.

    Notes
    -----
    One epoch costs two forward and backward passes over four times the rows of the largest
    table. The epoch is chosen by the weighted risk (see `weighted_risk`) on the held-out rows, its
    policy gap fitted by logistic regression to the other rows. Weights are kept as
    arrays, so that `save_model` can store the model.

    References
    ----------
    I. Yamane, F. Yger, J. Atif, M. Sugiyama. Uplift Modeling from Separate Labels. NeurIPS 2018.
    C. Daskalakis, A. Ilyas, V. Syrgkanis, H. Zeng. Training GANs with Optimism. ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem(b=5.0)
    >>> data = problem.draw(500, random_state=0)
    >>> model = NeuralMinMaxUplift(max_epochs=20, random_state=0).fit(**data)
    >>> X_new = problem.draw_joint(5000, random_state=1).X
    >>> bool(np.corrcoef(model.predict(X_new), problem.uplift(X_new))[0, 1] > 0.7)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "uplift_module": check_maker,
        "critic_module": check_maker,
        "n_hidden": check_count,
        "loss": _check_loss,
        "ridge_f": check_not_negative,
        "ridge_g": check_not_negative,
        "learning_rate": check_positive,
        "batch_size": optional(check_count),
        "max_epochs": check_count,
        "validation_share": _check_validation_share,
        "patience": optional(check_count),
        "device": one_of("cpu", "cuda", "auto"),
        "verbose": check_verbose,
    }

    def __init__(
        self,
        *,
        uplift_module: ModuleMaker | None = None,
        critic_module: ModuleMaker | None = None,
        n_hidden: int = 64,
        loss: Any = "squared",
        ridge_f: float = 3e-4,
        ridge_g: float = 3e-4,
        learning_rate: float = 1e-3,
        batch_size: int | None = 512,
        max_epochs: int = 200,
        validation_share: float = 0.2,
        patience: int | None = 30,
        device: str = "cpu",
        verbose: bool | int = False,
        random_state: RandomState = None,
    ) -> None:
        self.uplift_module = uplift_module
        self.critic_module = critic_module
        self.n_hidden = n_hidden
        self.loss = loss
        self.ridge_f = ridge_f
        self.ridge_g = ridge_g
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.validation_share = validation_share
        self.patience = patience
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        settings = self._settings()
        scaled = self._scale(rows)
        at, held_at = split_cells(scaled, self.validation_share, rng)
        train = scaled.take(at)
        held_out = scaled.take(held_at)
        held = None
        if len(held_at):
            held = HeldOut(self._tensor(held_out.X), held_out_risk(train, held_out))

        def on_epoch(epoch: int, objective: float, risk: float) -> None:
            LOGGER.debug(
                "epoch %d: objective %.4g, held-out risk %.4g", epoch, objective, risk
            )
            PROGRESS.debug("%s: %d of %d", "training", epoch, settings.max_epochs)

        with seeded(int(rng.randint(2**31 - 1)), self._device()):
            f = self._build("uplift_module")
            g = self._build("critic_module")
            fit = train_saddle(
                f,
                g,
                self._tensors(train),
                settings,
                rng=rng,
                held=held,
                on_epoch=on_epoch,
            )
        self.uplift_weights_ = fit.uplift
        self.critic_weights_ = fit.critic
        self.n_epochs_ = len(fit.objective)
        self.best_epoch_ = fit.best_epoch
        self.history_ = {"objective": fit.objective, "held_out_risk": fit.risk}

    def _predict_rows(self, matrix: Array) -> Array:
        values = self._evaluate(matrix, "uplift_module")
        return self.outcome_scale_ * values

    def critic(self, X: MatrixLike) -> Array:
        """Return the critic g(x), as `MinMaxUplift.critic` does for the squared loss.

        With another loss it is the loss's derivative, in units of the standardised outcome.
        """
        values = self._evaluate(self._check_features(X, reset=False), "critic_module")
        return self.outcome_scale_ * values if isinstance(self.loss, str) else values

    @property
    def uplift_module_(self) -> Any:
        """A module with the weights found for f, on scaled features."""
        return self._rebuild("uplift_module")

    @property
    def critic_module_(self) -> Any:
        """A module with the weights found for g, on scaled features."""
        return self._rebuild("critic_module")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._device()

    def _settings(self) -> SaddleSettings:
        return SaddleSettings(
            learning_rate=float(self.learning_rate),
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            patience=self.patience,
            ridge_f=float(self.ridge_f),
            ridge_g=float(self.ridge_g),
            momentum=MOMENTUM,
            averaging=AVERAGING,
            conjugate=checked_conjugate(self.loss),
        )

    def _device(self) -> str:
        has_card: bool = import_torch().cuda.is_available()
        if self.device == "cuda" and not has_card:
            raise InputError(
                "device='cuda', but torch finds no graphics card. Use 'cpu' or 'auto'."
            )
        return "cuda" if self.device != "cpu" and has_card else "cpu"

    def _scale(self, rows: LabelledRows) -> LabelledRows:
        """Return the rows as the modules see them, and note how to get back."""
        # A constant in y has no bearing on the uplift and only adds noise; rare outcomes vary
        # little, and networks learn best what varies by about one.
        outcome = rows.of_kind(OUTCOME)
        scaling = Scaling.of_rows(rows.label[outcome, None], rows.share[outcome])
        label = rows.label.copy()
        label[outcome] = scaling(label[outcome, None])[:, 0]
        self.scaling_ = Scaling.of_rows(rows.X, rows.share)
        self.outcome_scale_ = rows.coding.scale * float(scaling.scale[0])
        return replace(rows, X=self.scaling_(rows.X), label=label)

    def _tensor(self, values: Array) -> Any:
        torch = import_torch()
        return torch.as_tensor(values, dtype=torch.float32, device=self._device())

    def _tensors(self, rows: LabelledRows) -> SaddleRows:
        """Return the training rows, which come ordered by `CELLS`, as tensors."""
        return SaddleRows(
            self._tensor(rows.X),
            self._tensor(rows.share * rows.sign * rows.label),
            self._tensor(rows.share),
            tuple(len(rows.at(kind, k)) for kind, k in CELLS),
        )

    def _build(self, name: str) -> Any:
        maker = getattr(self, name) or partial(default_network, n_hidden=self.n_hidden)
        return build_module(maker, self._n_columns, name=name, device=self._device())

    def _rebuild(self, name: str) -> Any:
        check_is_fitted(self)
        torch = import_torch()
        weights: Weights = getattr(self, name.replace("module", "weights_"))
        with seeded(0, self._device()):  # first weights are drawn, then replaced
            module = self._build(name)
        module.load_state_dict(
            {key: torch.as_tensor(value) for key, value in weights.items()}
        )
        return module.eval()

    def _evaluate(self, matrix: Array, name: str) -> Array:
        return evaluate_module(
            self._rebuild(name), self._tensor(self.scaling_(matrix)), name=name
        )


CELLS = [(kind, k) for kind in (TREATMENT, OUTCOME) for k in (0, 1)]


def split_cells(
    rows: LabelledRows, share: float, rng: np.random.RandomState
) -> tuple[IntArray, IntArray]:
    """Return positions to train on, ordered by `CELLS`, and a share of each cell held out."""
    train, held = [], []
    for kind, k in CELLS:
        at = rows.at(kind, k)
        if share == 0.0:
            train.append(at)
            continue
        if len(at) < 2:
            raise InputError(
                f"population {rows.names[k]!r} has only one {kind} row, so none can be held out "
                f"to choose the epoch (n_samples={len(rows.label)} labelled rows in all). Set "
                "validation_share=0 to train on all rows."
            )
        shuffled = rng.permutation(at)
        n_held = min(max(1, round(share * len(at))), len(at) - 1)
        held.append(shuffled[:n_held])
        train.append(np.sort(shuffled[n_held:]))
    empty = np.empty(0, dtype=np.int64)
    return np.concatenate(train), np.concatenate([empty, *held])


def held_out_risk(train: LabelledRows, held: LabelledRows) -> Callable[[Array], float]:
    """Return the weighted risk on held-out rows as a function of f's values there."""
    # The policy gap is fitted once, to the training rows: for the held-out rows it is then a given
    # function, no folds are needed, and an epoch costs one pass over the values of f.
    scaling = Scaling.of_rows(train.X, train.share)
    seedless = np.random.RandomState(0)  # a logistic regression draws nothing
    first, second = fit_pair(None, scaling(train.X), train, TREATMENT, seedless)
    Z = scaling(held.X)
    share = held.share
    gap = held.sign * (first(Z) - second(Z)) / 2.0
    mean_outcome = (share * held.label)[held.is_outcome].sum()
    center = np.where(held.is_outcome, mean_outcome, 0.0)

    def risk(f: Array) -> float:
        return float(share @ weighted_values(f, held, gap, center))

    return risk
