"""The min-max game of torch modules: the closed form where there is one, and honest failures."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unjoined import MinMaxUplift, NeuralMinMaxUplift, SeparateLabels
from unjoined.data import paper_problem
from unjoined.data.rows import label_rows, separate_labels
from unjoined.errors import InputError, MissingExtraError
from unjoined.evaluate import qini
from unjoined.paper import SmoothLoss
from unjoined.paper.networks import (
    SaddleRows,
    SaddleSettings,
    default_network,
    row_batches,
    seeded,
    train_saddle,
)
from unjoined.paper.neural import held_out_risk, split_cells

torch = pytest.importorskip("torch")
Linear = partial(torch.nn.Linear, out_features=1)
RIDGE_F, RIDGE_G = 0.02, 0.03
SETTINGS = SaddleSettings(
    learning_rate=0.05, max_epochs=6000, ridge_f=RIDGE_F, ridge_g=RIDGE_G, momentum=0.5
)


def double():
    return torch.nn.Linear(2, 1, dtype=torch.float64)


def trained(data, settings=SETTINGS, make=double):
    """Train two modules on all rows at once, in double precision, on features as they are."""
    rows = label_rows(**dict(data))
    at, _ = split_cells(rows, 0.0, np.random.RandomState(0))
    rows = rows.take(at)
    tensors = [
        torch.as_tensor(v) for v in (rows.X, rows.share * rows.sign * rows.label)
    ]
    sizes = [len(rows.at(kind, k)) for kind in ("treatment", "outcome") for k in (0, 1)]
    saddle = SaddleRows(*tensors, torch.as_tensor(rows.share), tuple(sizes))
    with seeded(0, "cpu"):
        f, g = make(), make()
        return train_saddle(f, g, saddle, settings, rng=np.random.RandomState(0))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data():
    """Four tables of unequal sizes, features of about unit variance."""
    sizes = dict(zip(("o1", "o2", "t1", "t2"), (300, 400, 350, 200), strict=True))
    names = {"o": "outcome", "t": "treatment"}
    drawn = paper_problem().draw(
        {(names[key[0]], key[1]): n for key, n in sizes.items()}, random_state=0
    )
    return SeparateLabels(**{**dict(drawn), "X": np.asarray(drawn.X) / 3.0})


@pytest.fixture(scope="module")
def linear(data):
    return trained(data)


def system(data):
    """A, b, C of the paper on a constant and the features, cell by cell."""
    A, b, C = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3))
    for name, sign in (("1", 1.0), ("2", -1.0)):
        at = data.rows("treatment", name)
        phi = np.column_stack([np.ones(len(at)), data.X[at]])
        t = 2.0 * data.treatment[at] - 1.0
        A += sign / 2.0 * (phi * t[:, None]).T @ phi / len(at)
        C += phi.T @ phi / len(at) / 4.0
        at = data.rows("outcome", name)
        phi = np.column_stack([np.ones(len(at)), data.X[at]])
        b += sign / 2.0 * phi.T @ data.y[at] / len(at)
        C += phi.T @ phi / len(at) / 4.0
    return A, b, C


def coefficients(weights):
    return np.append(weights["bias"], weights["weight"])


def slopes(data, alpha, beta):
    """Both players' gradients of the penalised objective, in numpy."""
    A, b, C = system(data)
    return (
        2.0 * A @ beta + 2.0 * RIDGE_F * alpha,
        2.0 * A.T @ alpha - 4.0 * b - 2.0 * C @ beta - 2.0 * RIDGE_G * beta,
    )


def test_full_batch_training_ends_where_both_slopes_vanish(data, linear):
    """First-order conditions. Rounding in sums of 1,250 terms of order 1 leaves about 1e-13."""
    alpha, beta = coefficients(linear.uplift), coefficients(linear.critic)
    for slope in slopes(data, alpha, beta):
        assert_allclose(slope, 0.0, atol=1e-11)


def test_linear_modules_find_the_closed_form(data, linear):
    """The penalties are those of `MinMaxUplift`: squared norm of all coefficients, bias included.

    The slopes form a map that is strongly monotone with modulus 2 min(ridge_f, ridge_g +
    smallest eigenvalue of C), so that no point is farther from the solution than the norm of
    its slopes over the modulus.
    """
    exact = MinMaxUplift(
        basis="linear",
        standardize=False,
        ridge_f=RIDGE_F,
        ridge_g=RIDGE_G,
        center=False,
    ).fit(**data)
    alpha, beta = coefficients(linear.uplift), coefficients(linear.critic)
    modulus = 2.0 * min(RIDGE_F, RIDGE_G + np.linalg.eigvalsh(system(data)[2])[0])
    bound = np.linalg.norm(np.concatenate(slopes(data, alpha, beta))) / modulus
    found, truth = np.append(alpha, beta), np.append(exact.coef_, exact.critic_coef_)
    assert np.linalg.norm(found - truth) <= bound + 1e-12 * np.linalg.norm(truth)
    phi = np.column_stack([np.ones(data.n_rows), data.X])
    assert_allclose(phi @ alpha, exact.predict(data.X), atol=1e-9)
    assert_allclose(phi @ beta, exact.critic(data.X), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("divisor", "ridge_f", "ridge_g", "critic"),
    [(4.0, RIDGE_F, RIDGE_G / 4.0, 2.0), (2.0, RIDGE_F / 2.0, RIDGE_G / 2.0, 1.0)],
    ids=["squared", "half squared"],
)
def test_conjugates_of_the_squared_loss_find_the_same_uplift(
    data, linear, divisor, ridge_f, ridge_g, critic
):
    """rho(r) = r^2 gives the paper's J with g -> 2g; rho(r) = r^2/2 gives J/2."""
    settings = replace(
        SETTINGS, conjugate=lambda g: g**2 / divisor, ridge_f=ridge_f, ridge_g=ridge_g
    )
    found = trained(data, settings)
    assert_allclose(coefficients(found.uplift), coefficients(linear.uplift), atol=1e-8)
    assert_allclose(
        coefficients(found.critic), critic * coefficients(linear.critic), atol=1e-8
    )


HALF_SQUARE = SmoothLoss(
    rho=lambda v: v**2 / 2.0,
    conjugate=lambda g: g**2 / 2.0,
    slope=lambda g: g,
    curve=lambda g: np.ones_like(g),
)


@pytest.mark.slow
def test_with_a_conjugate_the_ridge_of_the_critic_is_a_quarter_of_that_of_min_max(data):
    """What the guide says of penalties; steps end within 1e-7 of the saddle point."""
    exact = MinMaxUplift(
        basis="linear",
        standardize=False,
        center=False,
        loss=HALF_SQUARE,
        ridge_f=RIDGE_F,
        ridge_g=RIDGE_G,
    ).fit(**data)
    settings = replace(
        SETTINGS, conjugate=lambda g: g.square() / 2.0, ridge_g=RIDGE_G / 4.0
    )
    found = trained(data, settings)
    assert_allclose(coefficients(found.uplift), exact.coef_, atol=1e-6)
    assert_allclose(coefficients(found.critic), exact.critic_coef_, atol=1e-6)


@pytest.mark.parametrize(("momentum", "settles"), [(0.0, True), (0.9, False)])
def test_optimistic_steps_settle_and_momentum_makes_them_circle(momentum, settles):
    """f g and next to nothing else: the saddle is at 0, and the players start at distance 1.

    Momentum answers late and undoes what optimism gains.
    """
    one = torch.ones(4, 1, dtype=torch.float64)
    rows = SaddleRows(
        one, one[:, 0] * torch.tensor([0.5, 0.5, 0.0, 0.0]), one[:, 0] / 2, (1,) * 4
    )
    f, g = (torch.nn.Linear(1, 1, bias=False, dtype=torch.float64) for _ in range(2))
    for module in (f, g):
        torch.nn.init.constant_(module.weight, np.sqrt(0.5))
    settings = SaddleSettings(
        learning_rate=0.1,
        max_epochs=700,
        momentum=momentum,
        conjugate=lambda values: 1e-6 * values**2,
    )
    found = train_saddle(f, g, rows, settings, rng=np.random.RandomState(0))
    distance = np.hypot(found.uplift["weight"].item(), found.critic["weight"].item())
    assert distance < 1e-3 if settles else distance > 1.0


def test_the_same_seed_gives_the_same_bits_and_torch_keeps_its_own(data):
    """With dropout, which draws from torch's generator at every step."""

    def dropout(n_features):
        nn = torch.nn
        return nn.Sequential(
            nn.Linear(n_features, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1)
        )

    model = NeuralMinMaxUplift(
        uplift_module=dropout, max_epochs=3, random_state=1, batch_size=64
    )
    before = torch.get_rng_state()
    first = model.fit(**data).predict(data.X)
    torch.rand(3)
    torch.set_rng_state(before)
    second = clone(model).fit(**data).predict(data.X)
    assert_array_equal(first, second)
    assert_array_equal(model.predict(data.X), first)  # no dropout at predict
    assert torch.equal(torch.get_rng_state(), before)
    other = clone(model).set_params(random_state=2).fit(**data).predict(data.X)
    assert not np.array_equal(first, other)


def test_duplicating_a_table_changes_nothing(data):
    """Each cell counts half of its kind, whatever its size."""
    settings = replace(SETTINGS, max_epochs=50)
    order = np.sort(np.append(np.arange(data.n_rows), data.rows("outcome", "2")))
    network = partial(default_network, 2, 8)
    doubled, once = (
        trained(rows, settings, lambda: network().double())
        for rows in (data.take(order), data)
    )
    for name, weight in once.uplift.items():
        assert_allclose(doubled.uplift[name], weight, atol=1e-10)


def test_whole_weights_equal_repeated_rows_and_target_rows_do_not_count(data):
    settings = replace(SETTINGS, max_epochs=50)
    weight = np.random.default_rng(0).integers(0, 3, data.n_rows)
    repeated = trained(data.take(np.repeat(np.arange(data.n_rows), weight)), settings)
    with_target = {
        "X": np.vstack([data.X, np.full((5, 2), 100.0)]),
        "y": np.append(data.y, np.full(5, np.nan)),
        "treatment": np.append(data.treatment, np.full(5, np.nan)),
        "population": np.append(data.population, [""] * 5),
        "sample_weight": np.append(weight, np.ones(5)),
    }
    weighted = trained(with_target, settings)
    assert_allclose(
        coefficients(weighted.uplift), coefficients(repeated.uplift), atol=1e-10
    )


def test_batches_hold_every_cell_and_average_to_all_rows():
    """The largest cell once per epoch; small ones more often; a tiny one whole every time."""
    sizes = (40, 2, 12, 40)
    rng = np.random.RandomState(0)
    weight = torch.tensor(rng.uniform(0.5, 2.0, sum(sizes)))
    number = torch.arange(sum(sizes), dtype=torch.float64)[:, None]
    batches = list(row_batches(SaddleRows(number, weight, weight, sizes), 16, rng))
    assert len(batches) == 10
    assert all((batch.n_treatment, len(batch.Z)) == (6, 14) for batch in batches)
    seen = [batch.Z[:, 0].long() for batch in batches]
    cells = torch.repeat_interleave(torch.arange(4), torch.tensor(sizes))
    counts = torch.bincount(torch.cat(seen), minlength=sum(sizes))
    assert all(
        cells[positions].tolist() == [0] * 4 + [1] * 2 + [2] * 4 + [3] * 4
        for positions in seen
    )
    assert set(counts[cells == 0].tolist()) == set(counts[cells == 3].tolist()) == {1}
    assert set(counts[cells == 1].tolist()) == {10}
    assert set(counts[cells == 2].tolist()) == {3, 4}
    for cell, where in ((0, slice(0, 4)), (1, slice(4, 6)), (3, slice(10, 14))):
        mean = np.mean([float(batch.share[where].sum()) for batch in batches])
        assert mean == pytest.approx(float(weight[cells == cell].sum()))


def test_early_stopping_restores_the_best_epoch(data):
    model = NeuralMinMaxUplift(
        max_epochs=60,
        patience=5,
        n_hidden=16,
        learning_rate=0.01,
        random_state=0,
        batch_size=128,
    ).fit(**data)
    risk = model.history_["held_out_risk"]
    assert model.n_epochs_ == len(risk) == len(model.history_["objective"])
    assert model.best_epoch_ == np.argmin(risk) + 1
    assert model.n_epochs_ == model.best_epoch_ + 5 < 60
    again = clone(model).set_params(max_epochs=model.best_epoch_).fit(**data)
    assert_array_equal(again.predict(data.X), model.predict(data.X))
    patient = clone(model).set_params(patience=None, max_epochs=20).fit(**data)
    assert patient.n_epochs_ == 20
    assert patient.best_epoch_ == np.argmin(patient.history_["held_out_risk"]) + 1


def test_held_out_risk_is_the_weighted_risk():
    """All were treated in one population and none in the other: the gap is 1 in both."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["outcome", "treatment"], 100)
    population = np.tile(["A", "B"], 100)
    y = np.where(kind == "treatment", population == "A", rng.standard_normal(200))
    X, weight = rng.standard_normal((200, 2)), rng.uniform(0.5, 2.0, 200)
    rows = label_rows(
        X, **separate_labels(y, kind), population=population, sample_weight=weight
    )
    at, held_at = split_cells(rows, 0.3, np.random.RandomState(0))
    assert sorted([*at, *held_at]) == list(range(200))
    assert len(held_at) == 4 * 15
    uplift = rng.standard_normal(len(held_at))
    held = rows.take(held_at)
    outcome, share = held.kind == "outcome", held.share
    centred = held.label - np.sum((share * held.label)[outcome])
    quadratic = np.sum((share * uplift**2)[~outcome])
    expected = quadratic - 4.0 * np.sum((share * held.sign * centred * uplift)[outcome])
    found = held_out_risk(rows.take(at), rows.take(held_at))(uplift)
    assert found == pytest.approx(expected, rel=1e-12)


def test_units_of_the_outcome_cancel(data):
    """A 0/1 outcome has half the uplift of the same outcome in -1/+1, and 1000 y a thousandfold."""
    model = NeuralMinMaxUplift(max_epochs=3, n_hidden=8, random_state=0)
    first = model.fit(**data).predict(data.X)
    coded = np.where(data.kind == "outcome", (data.y + 1.0) / 2.0, data.y)
    assert_allclose(
        model.fit(**{**dict(data), "y": coded}).predict(data.X), first / 2.0
    )
    noise = np.random.default_rng(0).standard_normal(data.n_rows)
    real, large = (
        np.where(data.kind == "outcome", scale * (data.y + noise) + shift, data.y)
        for scale, shift in ((1.0, 0.0), (1000.0, 5e4))
    )
    one = model.fit(**{**dict(data), "y": real}).predict(data.X)
    assert_allclose(
        model.fit(**{**dict(data), "y": large}).predict(data.X), 1000 * one, rtol=1e-3
    )


@pytest.mark.slow
@pytest.mark.statistical
def test_ranking_is_close_to_the_oracle_on_the_papers_problem():
    """A random order earns 0 of the oracle's area; ours five standard errors above half of it."""
    problem = paper_problem(b=5.0)
    model = NeuralMinMaxUplift(random_state=0).fit(**problem.draw(2000, random_state=0))
    new = problem.draw_joint(5000, random_state=1)
    share = qini(model.predict(new.X), new.uplift, normalize=True)
    assert share.value - 5.0 * share.standard_error > 0.5


def test_a_bounded_critic_plays_the_huber_loss():
    """Its conjugate is infinite beyond 1, where a critic that ends in tanh never goes."""
    problem = paper_problem(b=5.0)

    def huber(g):
        return torch.where(g.abs() <= 1.0, g.square() / 2.0, torch.inf)

    def bounded(n_features):
        nn = torch.nn
        return nn.Sequential(
            nn.Linear(n_features, 32), nn.Tanh(), nn.Linear(32, 1), nn.Tanh()
        )

    model = NeuralMinMaxUplift(
        loss=huber, critic_module=bounded, max_epochs=30, random_state=0
    )
    model.fit(**problem.draw(1000, random_state=0))
    new = problem.draw_joint(3000, random_state=1)
    assert np.abs(model.critic(new.X)).max() <= 1.0
    share = qini(model.predict(new.X), new.uplift, normalize=True)
    assert share.value - 5.0 * share.standard_error > 0.25
    with pytest.raises(
        InputError, match=r"the objective is -inf in epoch \d+\. .*conjugate is fin"
    ):
        model.set_params(critic_module=None, learning_rate=1.0).fit(
            **problem.draw(400, random_state=0)
        )


def test_modules_with_buffers_come_back_as_they_were(data):
    def normed(n_features):
        nn = torch.nn
        return nn.Sequential(
            nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        )

    model = NeuralMinMaxUplift(
        uplift_module=normed, max_epochs=8, patience=1, random_state=0
    )
    model.fit(**data)
    module = model.uplift_module_
    assert not module.training
    n_batches = -(-(400 - 80) // (512 // 4))  # of the largest table, a fifth held out
    assert int(module[1].num_batches_tracked) == n_batches * model.best_epoch_
    Z = torch.as_tensor(model.scaling_(data.X), dtype=torch.float32)
    with torch.no_grad():
        expected = model.outcome_scale_ * module(Z)[:, 0].numpy()
    assert_allclose(model.predict(data.X), expected, rtol=1e-6)
    torch.nn.init.zeros_(module[0].weight)  # a copy: the estimator does not change
    assert_allclose(model.predict(data.X), expected, rtol=1e-6)
    assert len(model.critic_module_) == 5


def test_weights_are_arrays_that_skops_stores(data, tmp_path):
    """Nothing of torch is in the file, so nothing has to be unpickled."""
    sio = pytest.importorskip("skops.io")
    model = NeuralMinMaxUplift(max_epochs=2, n_hidden=8, random_state=0).fit(**data)
    sio.dump(model, tmp_path / "model.skops")
    types = sio.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(name.startswith("unjoined.") for name in types)
    loaded = sio.load(tmp_path / "model.skops", trusted=types)
    assert_array_equal(loaded.predict(data.X), model.predict(data.X))
    assert_array_equal(loaded.critic(data.X), model.critic(data.X))


def test_works_in_a_pipeline(data):
    model = NeuralMinMaxUplift(max_epochs=2, n_hidden=8, random_state=0)
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), model).fit(**data)
        assert np.isfinite(pipe.predict(data.X)).all()


def test_verbose_tells_of_each_epoch(data, capsys):
    model = NeuralMinMaxUplift(max_epochs=2, n_hidden=8, verbose=2, random_state=0)
    model.fit(**data)
    told = capsys.readouterr()
    assert told.out == ""
    assert "epoch 2: objective" in told.err
    assert "training: 2 of 2" in told.err
    model.set_params(verbose=False).fit(**data)
    assert capsys.readouterr().err == ""


def test_without_torch_the_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtraError, match=r"'torch'.*pip install \"unjoined\[neural\]\""
    ):
        NeuralMinMaxUplift().fit(**data)


def test_a_fit_that_diverges_says_when_and_leaves_nothing_behind(data):
    wild = NeuralMinMaxUplift(
        uplift_module=Linear, critic_module=Linear, learning_rate=1e20, max_epochs=5
    )
    message = (
        r"training diverged: the objective is (nan|-?inf) in epoch \d"
        r".*learning_rate \(now 1e\+20\)"
    )
    with pytest.raises(InputError, match=message):
        wild.fit(**data)
    with pytest.raises(NotFittedError):
        wild.predict(data.X)
    tame = NeuralMinMaxUplift(max_epochs=2, n_hidden=8, random_state=0).fit(**data)
    with pytest.raises(InputError, match="diverged"):
        tame.set_params(learning_rate=1e20, max_epochs=9).fit(**data)
    with pytest.raises(NotFittedError):
        tame.predict(data.X)


def identity_module(n_features):
    return torch.nn.Flatten()


def test_bad_parameters_are_named(data):
    cases = (
        (
            {"uplift_module": torch.nn.Linear(2, 1)},
            "uplift_module is a module that was made alrea",
        ),
        (
            {"critic_module": "mlp"},
            "critic_module must be None or a callable .*got 'mlp'",
        ),
        ({"uplift_module": lambda n: n}, r"must return a torch.nn.Module .*got int"),
        (
            {"uplift_module": identity_module},
            "returned a module without trainable parameters",
        ),
        (
            {"critic_module": partial(torch.nn.Linear, out_features=3)},
            r"critic_module must give one number per row.* output has shape \(\d+, 3\)",
        ),
        (
            {"loss": "huber"},
            "loss must be 'squared' or the convex conjugate .*got 'huber'",
        ),
        (
            {"loss": lambda g: g.square().mean()},
            r"same shape.* for shape \(513,\) it gave \(\)",
        ),
        ({"loss": lambda g: 1.0}, r"for shape \(513,\) it gave float"),
        ({"loss": torch.log}, "finite at 0 and nowhere NaN or -inf. At 0 it is -inf"),
        ({"loss": lambda g: -g.square()}, r"not convex near g = -7.9.*g\*\*2 / 4"),
        (
            {"loss": lambda g: torch.where((g > 1) & (g < 2), torch.inf, g * 0)},
            "not convex near g = 1.03",
        ),
        ({"validation_share": 1.0}, "validation_share must be below 1"),
        ({"validation_share": 20}, r"validation_share must lie in \[0, 1\], got 20"),
        ({"device": "tpu"}, "device must be one of 'cpu', 'cuda', 'auto', got 'tpu'"),
        ({"n_hidden": 0}, "n_hidden must be a whole number, 1 or above, got 0"),
        ({"max_epochs": 0}, "max_epochs must be a whole number"),
        ({"batch_size": 0.5}, "batch_size must be a whole number"),
        ({"patience": 0}, "patience must be a whole number"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"ridge_f": -1.0}, "ridge_f must be a finite number, 0 or above"),
        ({"ridge_g": -1.0}, "ridge_g must be a finite number, 0 or above"),
    )
    for parameters, message in cases:
        with pytest.raises(InputError, match=message):
            NeuralMinMaxUplift(**parameters).fit(**data)


def test_a_missing_graphics_card_is_said_and_auto_does_without(data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        InputError, match=r"torch finds no graphics card\. Use 'cpu' or 'auto'"
    ):
        NeuralMinMaxUplift(device="cuda").fit(**data)
    model = NeuralMinMaxUplift(device="auto", max_epochs=1, random_state=0).fit(**data)
    same = NeuralMinMaxUplift(max_epochs=1, random_state=0).fit(**data)
    assert_array_equal(model.predict(data.X), same.predict(data.X))


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_a_table_of_one_row_cannot_be_split(data):
    spare = data.rows("treatment", "1")[1:]
    few = data.take(np.setdiff1d(np.arange(data.n_rows), spare))
    with pytest.raises(
        InputError, match=r"population '1' has only one treatment row.*share=0"
    ):
        NeuralMinMaxUplift(max_epochs=1).fit(**few)
    model = NeuralMinMaxUplift(max_epochs=1, validation_share=0.0).fit(**few)
    assert np.isfinite(model.predict(data.X)).all()
    assert len(model.history_["held_out_risk"]) == 0
    assert model.best_epoch_ == 1
