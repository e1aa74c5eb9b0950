"""What the ridges of networks are, in terms of those of `MinMaxUplift`."""

from functools import partial

import numpy as np
import pytest

import unjoined as uj

torch = pytest.importorskip("torch")
RIDGE_F, RIDGE_G = 0.1, 0.3
HALF_SQUARE = uj.losses.SmoothLoss(
    rho=lambda v: v**2 / 2.0,
    conjugate=lambda g: g**2 / 2.0,
    slope=lambda g: g,
    curve=lambda g: np.ones_like(g),
)
THREE = uj.losses.ThreePlayerLoss(
    conjugate=lambda s, y: (s + y) ** 2 / 2.0,
    biconjugate=lambda g, h: h**2 / 2.0 - g * h,
    slope_g=lambda g, h: -h,
    slope_h=lambda g, h: h - g,
)
# loss of MinMaxUplift, loss of the networks, what ridge_g is divided by for the latter
PAIRS = {
    "squared": ("squared", "squared", 1.0),
    "half-square": (HALF_SQUARE, lambda g: g.square() / 2.0, 4.0),
    "three players": (THREE, (THREE.conjugate, THREE.biconjugate), 2.0),
}


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("name", PAIRS)
def test_the_guide_said_that_ridges_are_the_same_for_every_loss(name):
    loss, conjugate, divisor = PAIRS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    data = uj.data.paper_problem(b=3.0).draw(60, random_state=0)
    X = np.asarray(data.X) / 3.0
    labels = {"y": data.y, "kind": data.kind, "population": data.population}
    exact = uj.MinMaxUplift(
        basis="linear",
        standardize=False,
        center=False,
        loss=loss,
        ridge_f=RIDGE_F,
        ridge_g=RIDGE_G,
        n_jobs=1,
    ).fit(X, **labels)
    Linear = partial(torch.nn.Linear, out_features=1)
    network = uj.NeuralMinMaxUplift(
        uplift_module=Linear,
        critic_module=Linear,
        third_module=Linear,
        loss=conjugate,
        ridge_f=RIDGE_F,
        ridge_g=RIDGE_G / divisor,
        batch_size=None,
        validation_share=0.0,
        momentum=0.5,
        averaging=0.0,
        standardize=False,
        dtype="float64",
        learning_rate=0.02,
        max_epochs=2500,
        random_state=0,
    ).fit(X, **labels)
    torch.set_num_threads(before)
    # Uplift and critic are of size 0.05; steps end within 1e-7 of the saddle point.
    np.testing.assert_allclose(network.predict(X), exact.predict(X), atol=1e-6)
    np.testing.assert_allclose(network.critic(X), exact.critic(X), atol=1e-6)
    if name != "three players":
        wanted = _objective(exact.predict(X), exact.critic(X), X, labels, name)
        assert network.history_["objective"][-1] == pytest.approx(wanted, abs=1e-8)


def _objective(f, g, X, labels, name):
    """Return what both play for, penalties off: the paper's objective, or its like."""
    if name == "squared":
        return uj.metrics.minmax_objective(f, g, X, **labels)
    # The paper's with g/2 has g^2/4 where the half square has the conjugate g^2/2.
    kind, population = np.asarray(labels["kind"]), np.asarray(labels["population"])
    cells = [(kind == k) & (population == p) for k in set(kind) for p in set(population)]
    square = np.mean([np.mean(g[cell] ** 2) for cell in cells])
    return uj.metrics.minmax_objective(f, g / 2.0, X, **labels) - square / 4.0
