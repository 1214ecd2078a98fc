"""The trainer does what is accounted: steps, noise, divisor, chunks, one program for a study."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD
from dpcompare_mechanisms.non_private import NonPrivate
from flax import struct

from dpcompare import steps, trainer
from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import DpcompareError
from dpcompare.mechanism import GradientRelease, Mechanism
from dpcompare.model import Model
from dpcompare.optimizers import OPTIMIZERS, Recipe
from dpcompare.privacy import Schedule
from dpcompare.tasks import PCTR
from dpcompare.tasks import find as find_task
from dpcompare.trainer import Streams, predict, train
from tests.networks import assert_close, random_batch, random_model


class ZeroLoss(DPSGD):
    """DP-SGD on gradients that are all zero: what moves the parameters is the noise alone."""

    def loss(self, task, logits, released):
        return 0.0 * logits


class UnitSlope(DPSGD):
    """Every example pulls the output bias by one, and nothing else is large."""

    def loss(self, task, logits, released):
        return logits


def rows_of(model, n, seed=0):
    features, labels = random_batch(model, n, seed)
    return features, labels


def run(mechanism, schedule, recipe=None, n=200, streams=None, model=None, labels=None):
    model = model or random_model()[0]
    features, made = rows_of(model, n)
    parameters = train(
        mechanism,
        PCTR,
        model,
        features,
        made if labels is None else labels,
        schedule,
        recipe or Recipe("sgd", 1.0, "constant"),
        streams or Streams(("shared",), ("noise",)),
    )
    return model, parameters


def start_of(model, streams=("shared",)):
    return model.init(trainer.jax_key("init", *streams))


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def step_noise(mechanism, schedule, **arguments):
    model, after = run(mechanism, schedule, **arguments)
    return flat(after) - flat(start_of(model))


@pytest.fixture(scope="module")
def wide_model():
    return random_model(tower=(64, 64))[0]


def calibrated(kind=ZeroLoss, **values):
    return kind(**{"clip_norm": 1.0, "noise_multiplier": 1.1, **values})


def test_noise_on_zero_gradients_is_sigma_c_over_the_expected_batch(wide_model):
    schedule = Schedule(1000, 256, 1, "poisson")
    noise = step_noise(calibrated(), schedule, n=1000, model=wide_model)
    error = 4 / np.sqrt(2 * noise.size)
    assert abs(noise.std() / (1.1 / 256) - 1) < error


@pytest.mark.parametrize("clip_norm", [0.1, 10.0])
def test_noise_is_proportional_to_the_clip_norm(wide_model, clip_norm):
    schedule = Schedule(1000, 64, 1, "poisson")
    noise = step_noise(calibrated(clip_norm=clip_norm), schedule, n=1000, model=wide_model)
    assert abs(noise.std() / (1.1 * clip_norm / 64) - 1) < 4 / np.sqrt(2 * noise.size)


def test_noise_does_not_depend_on_the_drawn_batch_size(wide_model):
    """Batches of 1,000 rows drawn at q = .02: from about 8 to 32 rows, one noise."""
    schedule = Schedule(1000, 20, 1, "poisson")
    for name in range(5):
        streams = Streams((f"batch {name}",), ("noise",))
        _, after = run(calibrated(), schedule, n=1000, model=wide_model, streams=streams)
        noise = flat(after) - flat(start_of(wide_model, streams.shared))
        assert abs(noise.std() / (1.1 / 20) - 1) < 4 / np.sqrt(2 * noise.size)


def test_an_empty_batch_still_takes_a_noisy_step(wide_model):
    schedule = Schedule(200, 1, 60, "poisson")
    draw = trainer.batch_draw(schedule, 1, "shared")
    assert min(len(draw(step)) for step in range(60)) == 0
    one = step_noise(calibrated(), Schedule(200, 1, 1, "poisson"), model=wide_model)
    sixty = step_noise(calibrated(), schedule, model=wide_model)
    assert abs(sixty.std() / one.std() / np.sqrt(60) - 1) < 0.06


def test_noise_of_groups_is_divided_by_the_expected_groups(wide_model):
    schedule = Schedule(1000, 64, 1, "poisson")
    noise = step_noise(calibrated(group_size=8), schedule, n=1000, model=wide_model)
    assert abs(noise.std() / (1.1 / 8) - 1) < 4 / np.sqrt(2 * noise.size)


def test_noise_of_steps_and_of_streams_is_independent(wide_model):
    schedule = Schedule(200, 20, 1, "poisson")
    first = step_noise(calibrated(), schedule, model=wide_model)
    other = step_noise(
        calibrated(), schedule, model=wide_model, streams=Streams(("shared",), ("other",))
    )
    two_steps = step_noise(calibrated(), Schedule(200, 20, 2, "poisson"), model=wide_model)
    second = two_steps - first
    correlations = np.corrcoef([first, other, second])[np.triu_indices(3, 1)]
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(first.size)


def test_the_divisor_is_the_expected_and_not_the_drawn_batch():
    schedule = Schedule(200, 20, 1, "poisson")
    mechanism = UnitSlope(clip_norm=1e6, noise_multiplier=0.0)
    model, after = run(mechanism, schedule)
    drawn = len(trainer.batch_draw(schedule, 1, "shared")(0))
    moved = float(
        start_of(model)["tower"]["output"]["bias"][0] - after["tower"]["output"]["bias"][0]
    )
    assert drawn != 20
    assert moved == pytest.approx(drawn / 20, rel=1e-5)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_exactly_the_scheduled_steps_are_taken(optimizer):
    """A constant slope of one: plain SGD at rate 1 moves the output bias by the number of steps."""
    schedule = Schedule(203, 50, 67, "shuffle")
    mechanism = NonPrivate()
    seen = []
    model, after = run(
        mechanism, schedule, Recipe(optimizer, 1e-4, "constant"), n=203, labels=jnp.ones(203)
    )
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(after))
    features, _ = rows_of(model, 203)
    train(
        mechanism, PCTR, model, features, jnp.ones(203), schedule,
        Recipe(optimizer, 1e-4, "constant"), Streams(("shared",), ()), seen.append,
    )  # fmt: skip
    assert seen == [pytest.approx(64 / 67), 1.0]


def test_sgd_takes_the_counted_steps():
    schedule = Schedule(203, 50, 67, "shuffle")

    class Slope(Mechanism):
        def loss(self, task, logits, released):
            return logits

    recipe = Recipe("sgd", 0.01, "constant")
    model, after = run(Slope(), schedule, recipe, n=203)
    before = float(start_of(model)["tower"]["output"]["bias"][0])
    moved = before - float(after["tower"]["output"]["bias"][0])
    assert moved == pytest.approx(0.67, rel=1e-4)


@pytest.mark.parametrize("mechanism", [NonPrivate(), calibrated(DPSGD)], ids=["plain", "dp-sgd"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 300])
def test_chunks_change_nothing_but_memory(mechanism, chunk):
    schedule = Schedule(1003, 250, 3, mechanism.sampling)
    _, expected = run(mechanism, schedule, Recipe("momentum", 0.1), n=1003)
    _, chunked = run(mechanism, schedule, Recipe("momentum", 0.1, chunk_size=chunk), n=1003)
    assert_close(chunked, expected, 1e-4)


def test_one_program_serves_all_trials_that_differ_only_in_numbers():
    schedule = Schedule(400, 40, 70, "poisson")
    model = random_model(tower=(11,))[0]
    before = steps.trace_count()
    for clip_norm, sigma, rate in ((1.0, 1.0, 0.1), (3.0, 0.5, 0.2), (np.float32(2), 7, 1)):
        mechanism = DPSGD(clip_norm=clip_norm, noise_multiplier=sigma)
        run(mechanism, schedule, Recipe("momentum", rate), n=400, model=model,
            streams=Streams((str(sigma),), (rate,)))  # fmt: skip
    run(DPSGD(noise_multiplier=2.0), Schedule(400, 40, 30, "poisson"), Recipe("momentum", 0.1),
        n=400, model=model)  # fmt: skip
    assert steps.trace_count() - before == 1


def test_no_noise_and_no_clipping_is_training_without_privacy():
    schedule = Schedule(300, 30, 20, "shuffle")
    private = DPSGD(sampling="shuffle", clip_norm=1e9, noise_multiplier=0.0)
    recipe = Recipe("momentum", 0.1)
    _, expected = run(NonPrivate(), schedule, recipe, n=300)
    assert_close(run(private, schedule, recipe, n=300)[1], expected, 1e-5)
    unbounded = private.replace(clip_norm=float("inf"))
    assert_close(run(unbounded, schedule, recipe, n=300)[1], expected, 1e-5)


def test_the_same_words_give_the_same_parameters():
    schedule = Schedule(300, 30, 20, "poisson")
    first = run(calibrated(DPSGD), schedule, n=300)[1]
    np.random.seed(1)  # a global generator has no say
    second = run(calibrated(DPSGD), schedule, n=300)[1]
    assert np.array_equal(flat(first), flat(second))


def test_divergence_is_an_error_that_names_the_steps():
    schedule = Schedule(300, 30, 20, "shuffle")
    with pytest.raises(DpcompareError, match=r"diverged between steps 1 and 20 of 20"):
        run(NonPrivate(), schedule, Recipe("momentum", 1e30), n=300)


def test_uncalibrated_noise_is_an_error():
    with pytest.raises(ValueError, match="calibrate"):
        run(DPSGD(), Schedule(300, 30, 20, "poisson"), n=300)


def test_weights_beyond_the_sensitivity_are_cut_to_it():
    """A plug-in whose weights ignore the norm cannot add more per row than it declares."""

    class Unclipped(Mechanism):
        sampling: str = struct.field(pytree_node=False, default="poisson")

        def gradient(self):
            return GradientRelease(1e-3, 0.0)

    schedule = Schedule(200, 200, 1, "poisson")
    model, after = run(Unclipped(), schedule)
    moved = np.linalg.norm(flat(after) - flat(start_of(model)))
    assert 1e-5 < moved <= 1e-3 * (1 + 1e-5)  # the mean of 200 rows of at most 1e-3


@pytest.mark.parametrize(
    "weights",
    [
        lambda norms: jnp.full_like(norms, -5.0),
        lambda norms: 1 / norms,
        lambda norms: jnp.full_like(norms, jnp.nan),
    ],
    ids=["negative", "normalizing", "nan"],
)
@pytest.mark.parametrize("slope", [1.0, 1e-25])
def test_no_weight_adds_more_than_the_sensitivity(weights, slope):
    """Also where the squares of a tiny gradient vanish in float32, so that its norm reads 0."""

    class Own(Mechanism):
        def gradient(self):
            return GradientRelease(1.0, 0.0)

        def weights(self, norms):
            return weights(norms)

        def loss(self, task, logits, released):
            return jnp.float32(slope) * logits

    model, after = run(Own(), Schedule(1, 1, 1, "shuffle"), n=1)
    moved = np.linalg.norm(flat(after) - flat(start_of(model)))
    assert moved <= 1 + 1e-5


def test_predictions_do_not_depend_on_how_rows_are_chunked(monkeypatch):
    model, parameters = random_model()
    features, _ = random_batch(model, 50)
    expected = predict(NonPrivate(), PCTR, model, parameters, features)
    monkeypatch.setattr(trainer, "EVALUATION_CHUNK", 16)
    chunked = predict(NonPrivate(), PCTR, model, parameters, features)
    np.testing.assert_allclose(chunked, expected, rtol=1e-6)
    direct = jax.nn.sigmoid(model.logits(parameters, features))
    np.testing.assert_allclose(expected, direct, rtol=1e-5)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_weight_decay_is_an_l2_penalty_on_all_weights_but_biases(optimizer):
    """Against optax on dense gradients, whole batches, a few steps."""
    model, rate, decay, steps_taken = random_model()[0], 0.05, 0.3, 4
    features, labels = rows_of(model, 40)
    recipe = Recipe(optimizer, rate, "constant", weight_decay=decay, lazy_noise="always")
    _, after = run(
        NonPrivate(), Schedule(40, 40, steps_taken, "shuffle"), recipe, n=40, model=model
    )

    def mean_loss(parameters):
        return jnp.mean(PCTR.loss(model.logits(parameters, features), labels))

    expected = start_of(model)
    decayed = {
        "embeddings": (True,) * len(expected["embeddings"]),
        "tower": {name: {"kernel": True, "bias": False} for name in expected["tower"]},
    }
    rule = optax.chain(optax.add_decayed_weights(decay, decayed), OPTIMIZERS[optimizer](0.9))
    state = rule.init(expected)
    for _ in range(steps_taken):
        update, state = rule.update(jax.grad(mean_loss)(expected), state, expected)
        expected = jax.tree.map(lambda p, u: p - rate * u, expected, update)
    np.testing.assert_allclose(
        np.concatenate([np.ravel(buffer) for buffer in after["embeddings"]]),
        model.tables.cut(expected["embeddings"][0], len(model.tables.sizes))[0],
        rtol=2e-3,
        atol=1e-5,
    )
    assert_close(after["tower"], expected["tower"], 2e-3)


def test_decay_comes_after_the_noise_and_shrinks_what_was_there():
    schedule = Schedule(200, 20, 1, "poisson")
    model = random_model()[0]
    still = calibrated(noise_multiplier=0.0)
    recipe = Recipe("sgd", 0.5, "constant", weight_decay=0.2)
    _, after = run(still, schedule, recipe, model=model)
    start = start_of(model)["tower"]["output"]
    np.testing.assert_allclose(after["tower"]["output"]["kernel"], 0.9 * start["kernel"], rtol=1e-6)


@pytest.mark.parametrize(("task", "rate"), [(PCTR, 0.03), (find_task("pconvs", 5), 1.7)])
def test_a_base_rate_sets_the_output_bias_and_nothing_else(task, rate):
    model = random_model()[0]
    features, labels = rows_of(model, 200)
    still = calibrated(noise_multiplier=0.0)
    trained = [
        train(
            still, task, model, features, labels, Schedule(200, 20, 1, "poisson"),
            Recipe("sgd", 1.0, "constant", base_rate=base_rate), Streams(("shared",), ("noise",)),
        )
        for base_rate in (0.0, rate)
    ]  # fmt: skip
    plain, started = (parameters["tower"]["output"] for parameters in trained)
    np.testing.assert_array_equal(started["kernel"], plain["kernel"])
    assert float(task.predict(started["bias"])[0]) == pytest.approx(rate, rel=1e-5)
    assert float(plain["bias"][0]) == 0


def test_an_exposure_adds_to_the_output_in_training_and_prediction():
    """An offset of c for every row is what an output bias of c would be."""
    model, parameters = random_model()
    features, labels = rows_of(model, 60)
    shifted = features._replace(offset=jnp.full(60, 0.7))
    direct = jax.nn.sigmoid(model.logits(parameters, features) + 0.7)
    found = predict(NonPrivate(), PCTR, model, parameters, shifted)
    np.testing.assert_allclose(found, direct, rtol=1e-5)

    slopes = []
    for rows in (features, shifted):
        after = train(
            NonPrivate(), PCTR, model, rows, labels, Schedule(60, 60, 1, "shuffle"),
            Recipe("sgd", 1.0, "constant"), Streams(("shared",), ()),
        )  # fmt: skip
        slopes.append(float(after["tower"]["output"]["bias"][0]))
    start = model.init(trainer.jax_key("init", "shared"))
    for slope, offset in zip(slopes, (0.0, 0.7), strict=True):
        expected = jnp.mean(jax.nn.sigmoid(model.logits(start, features) + offset) - labels)
        assert slope == pytest.approx(-float(expected), rel=1e-4)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("mechanism", [NonPrivate(), calibrated(DPSGD)], ids=["plain", "dp-sgd"])
def test_a_log_without_categories_trains(optimizer, mechanism):
    model = Model(3, EmbeddingTables(()), (4,))
    features = Features(np.ones((50, 3), np.float32), np.zeros((50, 0), np.int32))
    after = train(
        mechanism, PCTR, model, features, jnp.ones(50),
        Schedule(50, 10, 3, mechanism.sampling), Recipe(optimizer, 0.1), Streams(("a",), ("b",)),
    )  # fmt: skip
    assert np.all(np.isfinite(flat(after)))
    assert np.any(flat(after) != flat(start_of(model, ("a",))))


def test_mechanisms_with_equally_many_fields_share_no_program():
    """JAX compares the structure of two record classes by the number of their fields alone."""
    model = Model(1, EmbeddingTables(()), ())
    features = Features(np.ones((2, 1), np.float32), np.zeros((2, 0), np.int32))
    parameters = model.init(jax.random.key(0))

    def of_own_class(answer):
        class Constant(Mechanism):
            own: float = 1.0

            def predict(self, task, logits):
                return jnp.full_like(logits, answer)

        return Constant()

    mechanisms = [of_own_class(answer) for answer in range(120)]
    assert len({jax.tree.structure(mechanism) == jax.tree.structure(mechanisms[0])
                for mechanism in mechanisms}) == 1  # fmt: skip
    found = [float(predict(m, PCTR, model, parameters, features)[0]) for m in mechanisms]
    assert found == list(range(120))


def test_a_compiled_step_names_the_class_of_its_mechanism(monkeypatch):
    programs = []

    def remember(program, *arguments):
        programs.append(program)
        return run_steps(program, *arguments)

    run_steps = trainer.run_steps
    monkeypatch.setattr(trainer, "run_steps", remember)
    for mechanism in (calibrated(ZeroLoss), calibrated(UnitSlope)):
        run(mechanism, Schedule(200, 20, 2, "poisson"))
    assert [program.kind for program in programs] == [ZeroLoss, UnitSlope]
    assert programs[0] != programs[1]
