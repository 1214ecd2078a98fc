"""Recipes: learning rates, when to evaluate, and what is refused."""

import numpy as np
import pytest

from dpcompare.errors import UsageError
from dpcompare.optimizers import Recipe


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer": "lion"},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"momentum": 1.0},
        {"decay": "linear"},
        {"chunk_size": 0},
        {"lazy_noise": "sometimes"},
        {"evaluations": 0},
        {"weight_decay": -0.1},
        {"weight_decay": float("inf")},
        {"base_rate": float("nan")},
    ],
)
def test_recipes_that_cannot_work_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_learning_rates_fall_along_a_cosine():
    rates = Recipe("sgd", 2.0).learning_rates(100)
    np.testing.assert_allclose(rates, 1 + np.cos(np.pi * np.arange(100) / 100), atol=1e-6)
    assert set(Recipe("sgd", 2.0, "constant").learning_rates(5)) == {2.0}


def test_evaluations_are_evenly_spaced_and_end_with_the_last_step():
    assert Recipe().evaluation_steps(70) == [70]
    assert Recipe(evaluations=4).evaluation_steps(70) == [18, 35, 52, 70]
    assert Recipe(evaluations=9).evaluation_steps(3) == [1, 2, 3]
