"""What a guarantee lets an attacker know: how often one can be right at a given rate of errors.

Someone who has seen everything that a trial released, and knows all of the data but one label (or
one row), says which of two it was. Take one of the two for what is to be detected. How often it is
detected where it is there, the true positive rate (TPR), is bounded by how often it is "detected"
where it is not, the false positive rate (FPR): with delta(epsilon) the privacy profile of what was
released,

    TPR <= min over epsilon >= 0 of  delta(epsilon) + e^epsilon FPR  and
                                     1 - e^-epsilon (1 - delta(epsilon) - FPR),

and no bound that holds for every such pair of data sets is smaller (the trade-off function of
Dong, Roth, Su, arXiv 1905.02383, section 2.4, from above). Guarantees of different kinds, pure
ones of labels and approximate ones of rows, are thereby on one axis. A single (epsilon, delta)
says less: it is one line of many.

Everything here is an upper bound, rounded up.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dpcompare.accounting import directions, group_relation
from dpcompare.label_kernel import LabelKernel
from dpcompare.privacy import Neighboring
from dpcompare.privacy_loss import ComposedLoss, PrivacyLoss, Response
from dpcompare.recorded_releases import Released, released
from dpcompare.sampled_gaussian import SampledGaussian
from dpcompare.summary import Records, shown_trials

Array = NDArray[np.float64]

ROUNDING = 1e-12
"""By how much bounds are raised, relative to them: far more than sums of doubles are off."""

MOST_OUTCOMES = 2**20
"""Of randomized responses together; of more their epsilons are added up, which is looser."""

MANY_STEPS, COARSENING = 10_000, 3.0
"""From how many steps on the grid of privacy losses is how much coarser than for an epsilon.

A coarser grid is faster, and makes bounds larger: by about a percent at most where measured.
"""

LOG_LARGEST = 700.0
"""Above it exp() overflows."""

COLUMNS = ["label", "epsilon", "attack", "relation", "fpr", "tpr", "from_releases"]
"""Of :func:`of_records`."""

LABEL_FLIP, WHOLE_ROW = "label flip", "whole row"
"""What an attacker has to tell: a label from another, or a row from another or from none."""

FALSE_POSITIVE_RATES = (0.01, 0.001)
"""Those that the figure and the page show."""


class AttackPower(NamedTuple):
    """Upper bounds on true positive rates, one per false positive rate.

    Attributes:
        label_flip: of telling two labels of a row apart, (k,).
        whole_row: of telling two rows apart that differ as the guarantee's own relation says, (k,);
            1 where only labels are protected: the row's features are used as they are.
        from_releases: whether they follow from what was released. Else they follow from the stated
            epsilon and delta alone, and are looser.
    """

    label_flip: Array
    whole_row: Array
    from_releases: bool


def of_guarantee(guarantee: Mapping[str, Any], fpr: ArrayLike) -> AttackPower:
    """The attack power of what a record claims.

    A flipped label is a replaced row to a mechanism that protects rows, so its bound is that of
    replace-one, whatever relation the noise was calibrated for. Where rows are clipped in groups,
    a row that vanishes is a replaced one, see :func:`dpcompare.accounting.group_relation`.

    Args:
        guarantee: of a record, with the fields of :class:`dpcompare.privacy.Guarantee`.
        fpr: (k,) false positive rates, from 0 to 1.
    """
    rates = _rates(fpr)
    if guarantee["epsilon"] == math.inf:
        return AttackPower(np.ones_like(rates), np.ones_like(rates), True)
    label_only = guarantee["unit"] == "label"
    found = released(guarantee["events"])
    if found is None:
        return _of_statement(guarantee, rates)
    label_flip = _of_releases(found, "replace-one-label", rates)
    if label_only:
        return AttackPower(label_flip, np.ones_like(rates), True)
    relation = group_relation(guarantee["neighboring"], found.group_size)
    return AttackPower(label_flip, _of_releases(found, relation, rates), True)


def of_records(records: Records, fpr: Sequence[float] = FALSE_POSITIVE_RATES) -> pd.DataFrame:
    """The attack power of every curve of a study at every finite epsilon, as a tidy frame.

    Args:
        records: of one study. Of several trials with unlike releases the largest bound counts.
        fpr: false positive rates, from 0 to 1.

    Returns:
        One row per label, epsilon (asked for), attack (LABEL_FLIP or WHOLE_ROW) and fpr, with the
        relation of the two data sets ("none" where only labels are protected), tpr (the bound) and
        `from_releases`, see :class:`AttackPower`. What has no trial with a guarantee has no row.
    """
    rows: list[dict[str, Any]] = []
    for (label, epsilon), trials in shown_trials(records).items():
        guarantees = [trial["guarantee"] for trial in trials if trial["guarantee"]]
        if not guarantees or math.isinf(epsilon):
            continue
        powers = [of_guarantee(guarantee, fpr) for guarantee in guarantees]
        known = all(power.from_releases for power in powers)
        label_only = guarantees[0]["unit"] == "label"
        own = "none" if label_only else guarantees[0]["neighboring"]
        for attack, relation, bounds in (
            (LABEL_FLIP, "replace-one-label", [power.label_flip for power in powers]),
            (WHOLE_ROW, own, [power.whole_row for power in powers]),
        ):
            about = {"label": label, "epsilon": epsilon, "attack": attack, "relation": relation}
            for rate, bound in zip(fpr, np.max(bounds, axis=0), strict=True):
                rows.append(about | {"fpr": rate, "tpr": float(bound), "from_releases": known})
    return pd.DataFrame(rows, columns=COLUMNS)


def of_epsilon_delta(epsilon: float, delta: float, fpr: ArrayLike) -> Array:
    """What (epsilon, delta) alone implies, (k,): the privacy region of Kairouz et al., 1311.0776.

    Args:
        epsilon: from 0; infinite is no guarantee.
        delta: from 0 to 1.
        fpr: (k,) false positive rates, from 0 to 1.
    """
    rates = _rates(fpr)
    if math.isinf(epsilon):
        return np.ones_like(rates)
    return _below_lines([epsilon], [delta], rates)


def of_kernel(kernel: LabelKernel, fpr: ArrayLike) -> Array:
    """The exact power of a label kernel's worst pair of labels, (k,).

    Args:
        kernel: of everything that is released of a label.
        fpr: (k,) false positive rates, from 0 to 1.
    """
    rates, rows = _rates(fpr), kernel.probabilities
    pairs = permutations(range(len(rows)), 2)
    powers = [_most_powerful(rows[a], rows[b], rates) for a, b in pairs]
    return _rounded_up(np.max([rates, *powers], axis=0), rates)


def of_responses(responses: Sequence[Response], fpr: ArrayLike) -> Array:
    """The power of randomized responses of one label together, (k,); exact if they are binary.

    Args:
        responses: each with a finite epsilon; more than two outputs count as two, which is safe.
        fpr: (k,) false positive rates, from 0 to 1.
    """
    rates = _rates(fpr)
    if math.prod(response.times + 1 for response in responses) > MOST_OUTCOMES:
        return of_epsilon_delta(sum(r.times * r.epsilon for r in responses), 0.0, rates)
    first, second = np.ones(1), np.ones(1)
    for response in responses:
        flip = math.exp(-float(np.logaddexp(0.0, response.epsilon)))
        lies = stats.binom.pmf(np.arange(response.times + 1), response.times, flip)
        first, second = np.outer(first, lies).ravel(), np.outer(second, lies[::-1]).ravel()
    return _rounded_up(_most_powerful(first, second, rates), rates)


def of_gaussians(
    gaussians: Sequence[SampledGaussian],
    responses: Sequence[Response],
    neighboring: Neighboring,
    fpr: ArrayLike,
) -> Array:
    """The power of sampled Gaussians, and of randomized responses beside them, (k,).

    Args:
        gaussians: at least one, each with noise.
        responses: of labels, each with a finite epsilon.
        neighboring: the relation of the two data sets.
        fpr: (k,) false positive rates, from 0 to 1.
    """
    rates = tuple(float(rate) for rate in _rates(fpr))
    probability = min(gaussian.sampling_probability for gaussian in gaussians)
    ways = directions(neighboring, probability)
    return np.array(_of_losses(tuple(gaussians), tuple(responses), ways, rates))


def _of_statement(guarantee: Mapping[str, Any], rates: Array) -> AttackPower:
    stated, delta = float(guarantee["epsilon"]), float(guarantee["delta"])
    own = of_epsilon_delta(stated, delta, rates)
    if guarantee["unit"] == "label":
        return AttackPower(own, np.ones_like(rates), False)
    relations = {guarantee["neighboring"]: stated} | dict(guarantee["other_relations"])
    replaced = relations.get("replace-one")
    label_flip = of_epsilon_delta(math.inf if replaced is None else replaced, delta, rates)
    return AttackPower(label_flip, own, False)


def _of_releases(found: Released, neighboring: Neighboring, rates: Array) -> Array:
    if not found.gaussians:
        return of_responses(found.responses, rates)
    return of_gaussians(found.gaussians, found.responses, neighboring, rates)


@functools.lru_cache(maxsize=1024)
def _of_losses(
    gaussians: tuple[SampledGaussian, ...],
    responses: tuple[Response, ...],
    ways: tuple[Any, ...],
    rates: tuple[float, ...],
) -> tuple[float, ...]:
    """The lowest of the lines at the thresholds of the best tests, whichever way round.

    The profile at an epsilon is the larger one of the directions, so every line holds for each.
    """
    steps = sum(gaussian.steps for gaussian in gaussians)
    coarsening = COARSENING if steps > MANY_STEPS else 1.0
    smallest = min([rate for rate in rates if rate > 0], default=1e-6)
    losses = []
    for way in ways:
        loss = PrivacyLoss(gaussians, responses, way, coarsening)
        losses.append(loss.composed(loss.order_at_delta(min(1e-3, max(1e-9, smallest)))))
    thresholds = {0.0}.union(*(_thresholds(loss, rates) for loss in losses))
    epsilons = sorted({abs(threshold) for threshold in thresholds})
    deltas = [max(loss.delta(epsilon) for loss in losses) for epsilon in epsilons]
    return tuple(_below_lines(epsilons, deltas, np.array(rates)).tolist())


def _thresholds(loss: ComposedLoss, rates: Sequence[float]) -> set[float]:
    """The losses from which on the best test of each false positive rate says "detected".

    They need not be exact: every epsilon gives a line that is a bound, and near the right one the
    lines hardly differ.
    """
    exponents = np.minimum(loss.log_moment - (loss.order + 1) * loss.losses, LOG_LARGEST)
    other = np.maximum(loss.masses, 0.0) * np.exp(exponents)  # under the other data set
    tails = np.cumsum(other[::-1])
    places = np.minimum(np.searchsorted(tails, rates), len(tails) - 1)
    return {float(loss.losses[::-1][place]) for place in places}


def _below_lines(epsilons: Sequence[float], deltas: Sequence[float], rates: Array) -> Array:
    """The minimum over the lines of both signs that each (epsilon, delta) gives, (k,)."""
    likely = np.array(deltas)[:, None]
    factors = np.exp(np.minimum(np.array(epsilons), LOG_LARGEST))[:, None]
    rising = likely + factors * rates
    falling = 1 - (1 - likely - rates) / factors
    return _rounded_up(np.minimum(rising, falling).min(axis=0), rates)


def _most_powerful(first: Array, second: Array, rates: Array) -> Array:
    """P(S) of the test with Q(S) = rate that Neyman and Pearson say is best, (k,).

    Outcomes are taken by falling likelihood ratio; between two of them the test tosses a coin.

    Args:
        first: (outcomes,) their probabilities P where what is to be detected is there.
        second: (outcomes,) their probabilities Q where it is not.
        rates: (k,) false positive rates.
    """
    free = second == 0
    p, q = first[~free], second[~free]
    order = np.argsort(-(p / q), kind="stable")
    start = first[free].sum()
    falsely = np.concatenate([[0.0], np.cumsum(q[order])])
    rightly = start + np.concatenate([[0.0], np.cumsum(p[order])])
    return np.asarray(np.interp(rates, falsely, rightly))


def _rates(fpr: ArrayLike) -> Array:
    return np.atleast_1d(np.asarray(fpr, dtype=np.float64))


def _rounded_up(power: Array, rates: Array) -> Array:
    """A bound that stays one after rounding; never below guessing, nor above 1."""
    return np.minimum(1.0, np.maximum(rates, power * (1 + ROUNDING)))
