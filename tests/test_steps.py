"""The compiled step: no copies of tables, and lazy training equals eager training."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD
from dpcompare_mechanisms.non_private import NonPrivate

from dpcompare import missed_noise, trainer
from dpcompare.batches import MOST_STEPS
from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.lazy_tables import Noise
from dpcompare.model import Model
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Schedule
from dpcompare.steps import (
    Batches,
    Numbers,
    Program,
    _settle_velocity,
    _settle_weights,
    initial_state,
    run_steps,
)
from dpcompare.table_updates import TableUpdates
from dpcompare.tasks import PCTR
from dpcompare.trainer import Streams, train
from tests.networks import random_batch, random_model

BATCH = 64
EAGER_ROWS, LAZY_ROWS = 100, 60_000
LARGE = Model(3, EmbeddingTables((EAGER_ROWS, LAZY_ROWS, LAZY_ROWS)), (8,))


def compiled(mechanism, optimizer, lazy_noise, chunks):
    noisy = mechanism.gradient() is not None
    updates = TableUpdates.choose(LARGE.tables, optimizer, noisy, BATCH, lazy_noise)
    program = Program(type(mechanism), PCTR, LARGE, updates)
    numbers = Numbers(
        jax.tree.map(jnp.float32, mechanism), jnp.float32(0), jnp.float32(1), jax.random.key(0)
    )
    state = initial_state(program, LARGE.init(jax.random.key(0)), 0.0)
    rows = (MOST_STEPS, chunks, BATCH)
    features = Features(jnp.zeros((*rows, 3)), jnp.zeros((*rows, 3), jnp.int32))
    of_steps = jnp.zeros(MOST_STEPS)
    batches = Batches(
        (features, jnp.zeros(rows)), jnp.ones(rows, bool), of_steps.astype(jnp.int32), of_steps,
        *[jnp.int32(1)] * 3,
    )  # fmt: skip
    return run_steps.lower(program, numbers, state, batches).compile()


PATHS = {
    "plain sgd": (NonPrivate(), "sgd", "auto", 1),
    "plain momentum, lazy": (NonPrivate(), "momentum", "auto", 1),
    "noisy sgd, lazy": (DPSGD(noise_multiplier=1.0), "sgd", "auto", 2),
    "noisy sgd, eager": (DPSGD(noise_multiplier=1.0), "sgd", "never", 2),
    "noisy momentum, lazy": (DPSGD(noise_multiplier=1.0), "momentum", "auto", 2),
    "noisy momentum, eager": (DPSGD(noise_multiplier=1.0), "momentum", "never", 2),
}


def large_copies(text):
    """Instructions of a compiled program that copy an array with a number for every lazy row."""
    sizes = re.finditer(r"= \(?[a-z0-9]+\[(\d+)\]\S* copy(?:-start)?\(", text)
    return [match.group(0) for match in sizes if int(match.group(1)) >= LAZY_ROWS]


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_no_table_is_copied(path):
    program = compiled(*path)
    assert large_copies(program.as_text()) == []
    table_bytes = 4 * LARGE.tables.parameters
    assert program.memory_analysis().temp_size_in_bytes < table_bytes / 10


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_settling_copies_no_table(optimizer):
    updates = TableUpdates.choose(LARGE.tables, optimizer, noisy=True, batch_size=BATCH)
    tables = updates.start(LARGE.init(jax.random.key(0))["embeddings"][0], 0.9)
    noise = Noise(jax.random.key(0), jnp.float32(1), jnp.float32(0.9))
    groups = updates.lazy_groups
    programs = [
        _settle_weights.lower(groups, tables.weights[1], tables.lazy, noise).compile(),
        _settle_velocity.lower(groups, tables.lazy, noise).compile(),
    ]
    for program in programs:
        copies = large_copies(program.as_text())
        assert [copy for copy in copies if "f32" in copy] == []


def test_a_copied_table_would_be_found():
    """Used again after the update, the old table has to be kept."""

    @jax.jit
    def keeps_the_old(table):
        def body(_, both):
            table, total = both
            return table.at[0].add(1.0), total + jnp.sum(table) + table[0]

        new, total = jax.lax.fori_loop(0, 3, body, (table, 0.0))
        return new, total, table

    text = keeps_the_old.lower(jnp.zeros(LAZY_ROWS)).compile().as_text()
    assert len(large_copies(text)) > 0


# Lazy training without noise is eager training


class ZeroLoss(DPSGD):
    """What moves the parameters is the noise alone."""

    def loss(self, task, logits, released):
        return 0.0 * logits


NO_NOISE = DPSGD(clip_norm=1.0, noise_multiplier=0.0)
TABLES = {
    "one table a column": EmbeddingTables((7, 300, 80, 50, 200)),
    "shared tables": EmbeddingTables((7, 300, 80), (0, 1, 1, 2, 2)),
}


def trained(tables, optimizer, mechanism, evaluate=lambda step, parameters: None, **recipe):
    model = random_model(tables)[0]
    features, labels = random_batch(model, 200)
    schedule = Schedule(200, 20, 130, mechanism.sampling)
    settings = Recipe(optimizer, 0.3, **recipe)
    streams = Streams(("shared",), ("noise",))
    parameters = train(
        mechanism, PCTR, model, features, labels, schedule, settings, streams, evaluate=evaluate
    )
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(parameters)])


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize(
    ("tables", "kind"),
    [
        ("one table a column", "single rows"),
        ("one table a column", "plain"),
        ("shared tables", "single rows"),
        ("shared tables", "groups"),
    ],
)
def test_lazy_equals_eager_without_noise(tables, optimizer, kind):
    tables = TABLES[tables]
    mechanism = {
        "plain": NonPrivate(),
        "single rows": DPSGD(clip_norm=1.0, noise_multiplier=0.0),
        "groups": DPSGD(clip_norm=1.0, noise_multiplier=0.0, group_size=4),
    }[kind]
    eager = trained(tables, optimizer, mechanism, lazy_noise="never")
    variants = [{}, {"evaluations": 7}, {"chunk_size": 8}]
    everything = kind == "single rows" and optimizer == "momentum"
    for variant in variants if everything else variants[:1]:
        lazy = trained(tables, optimizer, mechanism, lazy_noise="always", **variant)
        np.testing.assert_allclose(lazy, eager, atol=5e-6, rtol=1e-5)


def test_looking_at_the_model_changes_nothing():
    """The draw depends on the evaluations that the recipe names, not on who looks."""
    mechanism = DPSGD(clip_norm=1.0, noise_multiplier=1.0)
    seen = []

    def look(step, parameters):
        seen.append((step, [np.array(leaf) for leaf in parameters["embeddings"]]))

    arguments = (TABLES["one table a column"], "momentum", mechanism)
    recipe = {"lazy_noise": "always", "evaluations": 3}
    unseen = trained(*arguments, **recipe)
    np.testing.assert_array_equal(trained(*arguments, look, **recipe), unseen)
    assert [step for step, _ in seen] == [43, 87, 130]
    assert not np.array_equal(trained(*arguments, lazy_noise="always"), unseen)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("lazy_noise", ["always", "never"])
def test_every_number_ends_with_the_noise_of_every_step(optimizer, lazy_noise):
    """Zero gradients: the final weights are noise alone, whose variance is a sum over steps."""

    tables = EmbeddingTables((7, 3000, 80, 50, 200))
    mechanism = ZeroLoss(clip_norm=2.0, noise_multiplier=1.5)
    still = trained(tables, optimizer, ZeroLoss(noise_multiplier=0.0), lazy_noise=lazy_noise)
    moved = trained(tables, optimizer, mechanism, lazy_noise=lazy_noise) - still
    rates = Recipe(optimizer, 0.3).learning_rates(130).astype(float)
    momentum = 0.9 if optimizer == "momentum" else 0.0
    expected = 1.5 * 2.0 / 20 * np.sqrt(np.sum(_reaches(rates, momentum) ** 2))
    width = tables.parameters
    for part in (moved[:width], moved[width:]):
        assert abs(part.std() / expected - 1) < 4 / np.sqrt(2 * part.size)
        assert abs(part.mean()) < 4 * expected / np.sqrt(part.size)


def test_more_steps_than_a_window_holds(monkeypatch):
    """With a window of 10: settled every 10 steps between evaluations, and nothing is lost."""
    eager = trained(TABLES["shared tables"], "momentum", NO_NOISE, lazy_noise="never")
    for module in (missed_noise, trainer):
        monkeypatch.setattr(module, "WINDOW", 10)
    settings = {"lazy_noise": "always", "evaluations": 2, "chunk_size": 8}
    lazy = trained(TABLES["shared tables"], "momentum", NO_NOISE, **settings)
    np.testing.assert_allclose(lazy, eager, atol=5e-6, rtol=1e-5)
    tables = EmbeddingTables((7, 3000, 80, 50, 200))
    still = trained(tables, "momentum", ZeroLoss(noise_multiplier=0.0), **settings)
    moved = trained(tables, "momentum", ZeroLoss(noise_multiplier=1.0), **settings) - still
    rates = Recipe("momentum", 0.3).learning_rates(130).astype(float)
    expected = 1.0 / 20 * np.sqrt(np.sum(_reaches(rates, 0.9) ** 2))
    of_tables = moved[: tables.parameters]
    assert abs(of_tables.std() / expected - 1) < 4 / np.sqrt(2 * of_tables.size)


def test_settling_happens_at_evaluations_and_when_a_window_is_full(monkeypatch):
    monkeypatch.setattr(trainer, "WINDOW", 10)
    assert sorted(trainer._settling_steps([25, 34])) == [10, 20, 25, 34]
    assert sorted(trainer._settling_steps([10, 20])) == [10, 20]


def test_rows_of_two_chunks_share_no_noise():
    """Every number of an all-zero table gets noise of its own when its row is settled."""
    model = Model(3, EmbeddingTables((4 * BATCH,)), ())
    updates = TableUpdates(model.tables, "sgd", 0)
    program = Program(ZeroLoss, PCTR, model, updates)
    mechanism = ZeroLoss(noise_multiplier=1.0)
    numbers = Numbers(
        jax.tree.map(jnp.float32, mechanism), jnp.float32(0), jnp.float32(1), jax.random.key(0)
    )
    zeros = jax.tree.map(jnp.zeros_like, model.init(jax.random.key(0)))
    ids = jnp.arange(2 * BATCH, dtype=jnp.int32).reshape(1, 2, BATCH)
    ids = jnp.concatenate([jnp.zeros_like(ids), ids])
    two_steps = Batches(
        (Features(jnp.zeros((*ids.shape, 3)), ids[..., None]), jnp.zeros(ids.shape)),
        jnp.broadcast_to(jnp.array([False, True])[:, None, None], ids.shape),
        jnp.array([0, 2]), jnp.array([1.0, 0.0]), jnp.int32(2), jnp.int32(0), jnp.int32(0),
    )  # fmt: skip
    state, _ = run_steps(program, numbers, initial_state(program, zeros, 0.0), two_steps)
    settled, untouched = np.split(np.asarray(state.tables.weights[1]), 2)
    assert np.all(untouched == 0)
    # Of 4,000 normals in float32 hardly any two are equal by chance.
    assert len(np.unique(settled)) > 0.999 * settled.size
    assert abs(settled.std() - 1) < 4 / np.sqrt(2 * settled.size)


def _reaches(rates, momentum):
    """How far one unit of each step's gradient moves the final weight."""
    steps = len(rates)
    return np.array([rates[s:] @ momentum ** np.arange(steps - s) for s in range(steps)])
