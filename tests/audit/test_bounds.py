"""Bounds: closed forms, the limits of a correct mechanism, and what a claim allows."""

import math
import sys

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy.stats import binom

from dpcompare.audit.bounds import (
    ERROR,
    Guesses,
    advantage_interval,
    guess,
    largest_advantage,
    library,
    lower_bound,
)
from dpcompare.audit.power import GaussianScores, best_share, expected_guesses, made_of
from dpcompare.errors import UsageError


@pytest.mark.parametrize(("made", "right"), [(1000, 800), (1000, 510), (200, 199)])
def test_a_pure_bound_is_where_the_binomial_tail_is_five_percent(made, right):
    bound = lower_bound(Guesses(5000, made, right), delta=0.0)
    if bound > 0:
        assert binom.sf(right - 1, made, 1 / (1 + math.exp(-bound))) == pytest.approx(
            ERROR, rel=1e-3
        )
    else:
        assert binom.sf(right - 1, made, 0.5) > ERROR


@pytest.mark.parametrize(
    "guesses", [Guesses(100, 100, 0), Guesses(100, 100, 100), Guesses(9, 1, 1)]
)
def test_extreme_guesses_have_a_bound(guesses):
    bound = lower_bound(guesses, delta=1e-5)
    assert bound == 0 or guesses.right == guesses.made
    # All right: q^made = 5% without the part that delta takes.
    q = ERROR ** (1 / guesses.made)
    assert bound <= max(0.0, math.log(q / (1 - q)) + 1e-6)


def test_delta_lowers_a_bound_and_more_confidence_too():
    guesses = Guesses(10_000, 1000, 800)
    assert lower_bound(guesses, 1e-5) < lower_bound(guesses, 0.0)
    assert lower_bound(guesses, 1e-5, error=1e-4) < lower_bound(guesses, 1e-5)


def test_guesses_are_the_scores_farthest_from_the_middle():
    scores = np.array([5.0, -4.0, 0.1, -0.1, 3.0])
    coins = np.array([True, False, False, True, False])
    assert guess(scores, coins, 3, middle=0.0) == Guesses(5, 3, 2)
    assert guess(scores, coins, 5, middle=0.0) == Guesses(5, 5, 2)


@pytest.mark.parametrize("gaussian", [False, True])
def test_bounds_of_an_ideal_gaussian_stay_below_its_epsilon(gaussian):
    """The guarantee is 95%; with 100 audits at most 11 may fail (a chance of .4%)."""
    sigma, delta, m = 1.0, 1e-4, 1000
    epsilon = get_epsilon_gaussian(sigma, delta)
    ideal, rng = GaussianScores(m, sigma, 1.0, 1, opposite=False), np.random.default_rng(4)
    found = [guess(*ideal(rng), 100, middle=0.0) for _ in range(100)]
    of_guesses = {guesses: lower_bound(guesses, delta, gaussian) for guesses in set(found)}
    bounds = [of_guesses[guesses] for guesses in found]
    assert sum(bound > epsilon for bound in bounds) <= 11
    assert np.mean(bounds) > 0.3 * epsilon


def test_pure_bounds_of_exact_randomized_response_fail_one_time_in_twenty():
    """The claim is met exactly, so the error is used up: 400 audits, 20 failures, 4 s.d. around."""
    rng, n, epsilon = np.random.default_rng(3), 2000, 1.0
    rights = rng.binomial(n, 1 / (1 + math.exp(-epsilon)), 400)
    found = {right: lower_bound(Guesses(n, n, int(right)), 0.0) for right in set(rights)}
    failures = sum(found[right] > epsilon for right in rights)
    assert 3 <= failures <= 38


def test_the_advantage_interval_covers_the_truth():
    rng, n, advantage = np.random.default_rng(2), 500, 0.3
    rights = rng.binomial(n, (1 + advantage) / 2, 300)
    covered = 0
    for right in rights:
        low, high = advantage_interval(Guesses(n, n, int(right)))
        covered += low <= advantage <= high
    assert covered >= 275  # 95% of 300 is 285, its standard deviation 3.8
    assert advantage_interval(Guesses(10, 10, 10))[1] == 1
    assert advantage_interval(Guesses(10, 10, 0))[0] == -1


def test_the_largest_advantage_is_that_of_randomized_response():
    assert largest_advantage(1.0, 0.0) == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert largest_advantage(1.0, 0.1) == pytest.approx((math.e - 1 + 0.2) / (math.e + 1))
    assert largest_advantage(math.inf, 0.0) == 1
    assert largest_advantage(1000.0, 0.1) == 1


def test_ideal_scores_have_the_moments_of_their_closed_form():
    ideal = GaussianScores(200_000, 2.0, 0.25, 16, opposite=False)
    scores, coins = ideal(np.random.default_rng(0))
    heads, tails = scores[coins] + 2, scores[~coins] + 2  # the middle is at 2
    assert heads.mean() == pytest.approx(4, abs=5 * 8.2 / 100_000**0.5)
    assert tails.mean() == pytest.approx(0, abs=5 * 8 / 100_000**0.5)
    assert heads.var() == pytest.approx(16 * 4 + 16 * 0.25 * 0.75, rel=0.03)
    assert tails.var() == pytest.approx(16 * 4, rel=0.03)


def test_expected_guesses_are_those_of_the_normal_distribution():
    ideal, rng = GaussianScores(50_000, 2.0, 1.0, 1, opposite=False), np.random.default_rng(0)
    (everything,) = expected_guesses(ideal, [1.0], rng)
    assert everything.made == 50_000
    # P(z > -mu / 2) with mu = 1/2, over ten draws.
    assert everything.right / everything.made == pytest.approx(0.59871, abs=4 * 0.49 / 500_000**0.5)
    assert made_of(1e-9, np.zeros(10)) == 1


def test_the_best_share_is_small_where_scores_tell_little_only():
    rng = np.random.default_rng(0)
    faint = GaussianScores(20_000, 4.0, 1.0, 1, opposite=False)
    clear = GaussianScores(20_000, 0.1, 1.0, 1, opposite=False)
    assert best_share(faint, 1e-5, rng) < 0.2
    assert best_share(clear, 1e-5, rng) == 1.0


def test_without_jax_privacy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    with pytest.raises(UsageError, match=r"pip install 'dpcompare\[audit\]'"):
        library()
