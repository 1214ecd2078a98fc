"""What `dpcompare show MECHANISM --epsilon` prints, against kernels and noise themselves."""

import math
import re

import numpy as np
import pytest
from scipy.stats import poisson

from dpcompare import catalog, tasks
from dpcompare.calibration import response_report
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.label_noise import SHAPES, LabelNoise
from dpcompare.label_table import (
    EXAMPLE_RATE,
    MOST_COLUMNS,
    example_prior,
    label_table,
    parse_parameters,
)
from dpcompare.mechanism import Mechanism, Plugin, find
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import PCTR

COUNTS = tasks.find("pconvs", 2)
LABEL_MECHANISMS = sorted(set(catalog.mechanisms()) - {"non-private", "dp-sgd"})
PRIOR_MECHANISMS = ["rr-on-bins", "unbiased-randomizer"]


def table(name, epsilon=1.0, task=COUNTS, base_rate=None, **parameters):
    return label_table(find(name), epsilon, task, parameters, base_rate)


def calibrated(name, epsilon=1.0, task=COUNTS, **parameters):
    schedule = Schedule(1000, 100, 10, "shuffle")
    return find(name).build(parameters).calibrate(Budget(epsilon, 1e-6), schedule, task)


def row(text, name):
    """The numbers of all rows called `name`, in a row."""
    found = re.findall(rf"^{re.escape(name)} {{2,}}(.*)$", text, re.MULTILINE)
    assert found, text
    return [float(cell) for line in found for cell in line.split()]


def worst_ratio(text):
    last = text.splitlines()[-1]
    found = re.fullmatch(
        r"worst likelihood ratio of an output between two labels: exp\((.*)\)", last
    )
    assert found, last
    return float(found[1])


def assert_shows(text, kernel):
    assert row(text, "label")[: len(kernel.probabilities)] == list(range(len(kernel.probabilities)))
    bias, variance = kernel.bias(kernel.outputs), kernel.variance(kernel.outputs)
    assert row(text, "bias") == pytest.approx(bias, rel=1e-3, abs=1e-11)
    assert row(text, "variance") == pytest.approx(variance, rel=1e-3, abs=1e-11)
    for output, chances in zip(kernel.outputs, kernel.probabilities.T, strict=True):
        assert row(text, f"{output:.5g}") == pytest.approx(chances, rel=1e-3)
    assert worst_ratio(text) == pytest.approx(kernel.epsilon(), rel=1e-8)


# --- all label mechanisms ------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 12.0, 50.0])
@pytest.mark.parametrize("task", [PCTR, COUNTS], ids=lambda task: task.name)
@pytest.mark.parametrize("name", LABEL_MECHANISMS)
def test_the_head_names_it_and_the_last_line_is_its_guarantee(name, task, epsilon):
    text = table(name, epsilon, task)
    last = task.classes - 1
    assert text.startswith(f"{name} at epsilon {epsilon:g}, labels 0 to {last} of {task.name}\n")
    assert worst_ratio(text) == pytest.approx(epsilon, rel=1e-8)
    assert text.endswith(")\n")


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 12.0, 50.0])
@pytest.mark.parametrize("task", [PCTR, COUNTS], ids=lambda task: task.name)
def test_randomized_response_is_shown_as_it_is(task, epsilon):
    text = table("randomized-response", epsilon, task)
    assert_shows(text, k_ary_randomized_response(epsilon, task.classes))


@pytest.mark.parametrize("name", PRIOR_MECHANISMS)
@pytest.mark.parametrize("prior", [[0.9, 0.07, 0.03], [0.2, 0.3, 0.5]])
def test_the_kernel_of_a_given_prior_is_shown(name, prior):
    text = table(name, prior=prior)
    assert "prior" not in text
    assert_shows(text, calibrated(name, prior=prior).kernel(COUNTS))


@pytest.mark.parametrize("name", PRIOR_MECHANISMS)
@pytest.mark.parametrize("base_rate", [None, 0.05, 1.5])
def test_without_a_prior_one_is_made_up_and_shown(name, base_rate):
    text = table(name, base_rate=base_rate)
    mean = EXAMPLE_RATE if base_rate is None else base_rate
    prior = [*poisson.pmf([0, 1], mean), poisson.sf(1, mean)]
    shown = re.search(r"^shown for the public prior ([^;]*);", text, re.MULTILINE)[1]
    assert [float(share) for share in shown.split(", ")] == pytest.approx(prior, rel=1e-3)
    assert "without one a part of epsilon pays for a histogram" in text
    assert_shows(text, calibrated(name, prior=example_prior(COUNTS, mean)).kernel(COUNTS))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_noise_is_shown_with_its_moments(shape, epsilon):
    text, noise = table("additive-noise", epsilon, shape=shape), LabelNoise(shape, epsilon, 2)
    assert f"output: label + {shape} noise of sensitivity 2\n" in text
    assert row(text, "bias") == [0, 0, 0]
    assert row(text, "variance") == pytest.approx([noise.variance()] * 3, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("shape", ["laplace", "staircase"])
def test_clamped_noise_is_shown_with_its_bias(shape, epsilon):
    text = table("additive-noise", epsilon, shape=shape, clamp=True)
    bias, variance = LabelNoise(shape, epsilon, 2).clamped_moments()
    assert f"{shape} noise of sensitivity 2, cut to 0..2\n" in text
    assert row(text, "bias") == pytest.approx(bias, rel=1e-3, abs=1e-11)
    assert row(text, "variance") == pytest.approx(variance, rel=1e-3)
    assert bias[0] > 0


def test_clamped_whole_noise_has_a_kernel():
    text = table("additive-noise", shape="discrete-laplace", clamp=True)
    assert_shows(text, LabelNoise("discrete-laplace", 1.0, 2, clamped=True).clamped_kernel())


# --- unbiased estimates --------------------------------------------------------------------------


def test_biased_outputs_are_shown_with_their_unbiased_estimates():
    text, kernel = table("randomized-response"), k_ary_randomized_response(1.0, 3)
    estimates = kernel.unbiased_estimates()
    shown = re.search(r"^unbiased estimates for the outputs: (.*)$", text, re.MULTILINE)[1]
    assert [float(value) for value in shown.split(", ")] == pytest.approx(estimates, rel=1e-4)
    assert row(text, "estimate's bias") == [0, 0, 0]
    assert row(text, "estimate's variance") == pytest.approx(kernel.variance(estimates), rel=1e-3)


def test_there_is_no_estimate_where_outputs_are_unbiased_or_none_can_be():
    assert "estimate" not in table("unbiased-randomizer")
    assert "estimate" not in table("rr-on-bins"), "two bins cannot tell three labels apart"
    assert "estimate" in table("rr-on-bins", task=PCTR)


def test_binary_labels_get_the_same_from_two_mechanisms():
    text = table("unbiased-randomizer", task=PCTR)
    expected = 1 / (4 * math.sinh(0.5) ** 2)
    assert row(text, "variance") == pytest.approx([expected] * 2, rel=1e-3)
    assert row(table("randomized-response", task=PCTR), "estimate's variance") == row(
        text, "variance"
    )


# --- what is printed, and how --------------------------------------------------------------------


def test_a_tiny_chance_is_not_printed_as_0():
    text = table("randomized-response", 50.0, PCTR)
    assert row(text, "1") == pytest.approx([math.exp(-50), 1], rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 12.0, 30.0, 88.0])
@pytest.mark.parametrize("name", ["randomized-response", "additive-noise"])
def test_columns_never_run_together(name, epsilon):
    lines = table(name, epsilon).splitlines()
    cells = [line.split() for line in lines if re.match(r"(output|bias|variance) ", line)]
    assert {len(found) for found in cells if found[0] != "output:"} == {4}


@pytest.mark.parametrize("labels", [MOST_COLUMNS - 1, MOST_COLUMNS, MOST_COLUMNS + 1, 30])
def test_many_labels_have_moments_in_parts_and_no_printed_kernel(labels):
    text = table("randomized-response", task=tasks.find("pconvs", labels - 1))
    kernel = k_ary_randomized_response(1.0, labels)
    few = labels <= MOST_COLUMNS
    assert ("P(.|0)" in text) is few
    assert (f"kernel: {labels} outputs; printed for at most 11 labels only" in text) is not few
    assert row(text, "label") == 2 * list(range(labels)), "of the outputs and of the estimates"
    assert row(text, "bias") == pytest.approx(kernel.bias(kernel.outputs), rel=1e-3, abs=1e-11)
    assert row(text, "variance") == pytest.approx(kernel.variance(kernel.outputs), rel=1e-3)
    assert max(len(line.split()) for line in text.splitlines() if line.startswith("bias")) <= 12


class Plain(Mechanism):
    """A mechanism with a kernel and nothing else of a label mechanism."""

    def kernel(self, task):
        return LabelKernel(np.eye(task.classes), np.arange(task.classes, dtype=float))


class Undecided(Mechanism):
    """A mechanism that has a kernel for binary labels only."""

    def kernel(self, task):
        return k_ary_randomized_response(1.0, 2) if task.classes == 2 else None


def test_a_kernel_that_hides_nothing_is_called_that():
    text = label_table(Plugin("plain", Plain, "1"), 1.0, COUNTS, {})
    assert text.splitlines()[-1] == (
        "worst likelihood ratio: infinite; these outputs are not private"
    )


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dp-sgd", "non-private"])
@pytest.mark.parametrize("epsilon", [1e-9, 1.0])
def test_mechanisms_that_do_not_randomize_labels_are_refused(name, epsilon):
    message = f"{name} has no label kernel; --epsilon is for mechanisms that randomize labels and"
    with pytest.raises(UsageError, match=f"^{message}"):
        table(name, epsilon)


def test_a_mechanism_without_a_kernel_for_the_task_is_refused():
    plugin = Plugin("undecided", Undecided, "1")
    assert worst_ratio(label_table(plugin, 1.0, PCTR, {})) == 1.0
    with pytest.raises(UsageError, match="undecided has no label kernel"):
        label_table(plugin, 1.0, COUNTS, {})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("randomized-response", {}),
        ("additive-noise", {}),
        ("rr-on-bins", {"prior": [0.9, 0.07, 0.03]}),
    ],
)
def test_a_base_rate_that_changes_nothing_is_refused(name, parameters):
    with pytest.raises(UsageError, match=f"--base-rate is for .* that of {name} does not"):
        table(name, base_rate=0.1, **parameters)


@pytest.mark.parametrize("task", [PCTR, tasks.find("pcvr")], ids=lambda task: task.name)
def test_priors_of_binary_labels_are_their_rate(task):
    assert example_prior(task, 0.03) == [0.97, 0.03]
    for rate in (1.0, 2.0):
        with pytest.raises(UsageError, match=f"base_rate of {task.name} must lie between 0 and 1"):
            example_prior(task, rate)


@pytest.mark.parametrize("rate", [1e-6, 0.3, 5.0, 1e9])
def test_priors_of_counts_are_probabilities_with_the_tail_in_the_last(rate):
    prior = example_prior(tasks.find("pconvs", 4), rate)
    assert len(prior) == 5
    assert min(prior) >= 0
    assert math.fsum(prior) == pytest.approx(1, abs=1e-12)
    assert prior[-1] == pytest.approx(poisson.sf(3, rate), rel=1e-9)


def test_parameters_are_checked_like_those_of_a_study():
    with pytest.raises(UsageError, match=r"no parameter 'shpae' .did you mean 'shape'"):
        table("additive-noise", shpae="laplace")
    with pytest.raises(UsageError, match="'clamp' must be of type bool, got 1"):
        table("additive-noise", clamp=1)
    with pytest.raises(UsageError, match="the 3 probabilities of labels 0 to 2"):
        table("rr-on-bins", prior=[0.5, 0.5])


# --- -p NAME=VALUE -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("clamp=true", True),
        ("clamp=maybe", "maybe"),
        ("clamp=0.25", 0.25),
        ("clamp=3", 3),
        ("clamp=staircase", "staircase"),
        ('clamp="staircase"', "staircase"),
        ("clamp=discrete-laplace", "discrete-laplace"),
        ("clamp=", ""),
        ("clamp=a=b", "a=b"),
        ("clamp=[0.9, 0.1]", [0.9, 0.1]),
        ("clamp=[]", []),
    ],
)
def test_values_are_toml_or_else_text(text, value):
    (parsed,) = parse_parameters([text]).items()
    assert parsed == ("clamp", value)
    assert type(parsed[1]) is type(value)


def test_several_parameters_are_read_and_the_last_of_a_name_counts():
    assert parse_parameters([]) == {}
    assert parse_parameters(["a=1", "b=x", "a=2"]) == {"a": 2, "b": "x"}


def test_what_is_no_parameter_is_refused():
    with pytest.raises(UsageError, match="-p shape: write name=value"):
        parse_parameters(["a=1", "shape"])
    for text in ("prior=[0.9, 0.1", "prior=[a, b]", "prior=[0.9 0.1]"):
        with pytest.raises(UsageError, match=r"-p prior=.*: the list is not TOML"):
            parse_parameters([text])


# --- dpcompare calibrate --mechanism randomized-response ------------------------------------------

# The effective share of clean labels, by base rate and epsilon: worked out before this code.
SHARES_AT = (0.1, 0.5, 1, 2, 3, 5, 8, 10)
SHARES = {
    0.5: (0.0025, 0.060, 0.214, 0.580, 0.819, 0.973, 0.999, 1.0),
    0.256: (0.0019, 0.046, 0.171, 0.513, 0.775, 0.965, 0.998, 1.0),
    0.108: (0.0010, 0.024, 0.095, 0.347, 0.636, 0.934, 0.997, 1.0),
    0.03: (0.0003, 0.0074, 0.031, 0.139, 0.345, 0.810, 0.989, 0.998),
    0.01: (0.0001, 0.0025, 0.011, 0.052, 0.152, 0.592, 0.967, 0.995),
    0.003: (3e-5, 0.0008, 0.0032, 0.016, 0.051, 0.305, 0.899, 0.985),
}


@pytest.mark.parametrize(("rate", "shares"), SHARES.items())
def test_effective_sample_sizes_are_those_of_the_table(rate, shares):
    for epsilon, share in zip(SHARES_AT, shares, strict=True):
        report = response_report(epsilon, rate)
        found = report["effective_sample_size_fraction"]
        places = 5 if share < 1e-4 else 4 if share < 0.01 else 3
        assert found == pytest.approx(share, abs=0.51 * 10**-places), (rate, epsilon)
        flip = 1 / (1 + math.exp(epsilon))
        assert report["flip_probability"] == pytest.approx(flip, rel=1e-12)
        observed = flip + (1 - 2 * flip) * rate
        assert report["observed_rate"] == pytest.approx(observed, rel=1e-12)
        closed = (1 - 2 * flip) ** 2 * rate * (1 - rate) / (observed * (1 - observed))
        assert found == pytest.approx(closed, rel=1e-9)


def test_a_report_says_what_it_was_asked():
    base = {"mechanism", "epsilon", "delta", "neighboring", "flip_probability"}
    rated = base | {"base_rate", "observed_rate", "effective_sample_size_fraction"}
    assert response_report(1.0).keys() == base
    assert response_report(1.0, 0.03).keys() == rated
    counted = response_report(1.0, 0.03, 100_000)
    assert counted.keys() == rated | {"examples", "effective_examples"}
    assert round(counted["effective_examples"]) == 3064
    assert (counted["delta"], counted["neighboring"]) == (0.0, "replace-one-label")
    with pytest.raises(UsageError, match="at most 700"):
        response_report(701.0)
