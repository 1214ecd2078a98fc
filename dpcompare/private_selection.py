"""What choosing the best of several candidates costs, such as the best of several settings.

A number K of candidates is drawn from the logarithmic distribution, ``P[K = k] = p^k / (k x)`` with
``x = log(1 / (1 - p))`` for k = 1, 2, ...; K candidates are made, each with fresh randomness and
settings that were drawn independently, and the one with the best score is released. That is
all that may be shown: neither the other candidates, nor their scores, nor K. Papernot and Steinke
(arXiv 2110.03620, Theorem 2 with eta = 0) bound what this reveals by what one candidate reveals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import dp_accounting as dp
import numpy as np
from dp_accounting import rdp
from scipy.optimize import brentq

from dpcompare.accounting import event_text, group_relation, renyi_divergences
from dpcompare.errors import UsageError
from dpcompare.privacy import ROW_RELATIONS, Budget, Guarantee, Release, RowRelation

ORDERS = np.concatenate(
    [
        np.linspace(1.1, 1.5, 8, endpoint=False),
        np.geomspace(1.5, 11, 100),
        np.arange(12, 64),
        [64, 72, 80, 88, 96, 112, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024, 2048],
        [math.inf],
    ]
)
"""Orders of the Rényi divergences; infinity is that of pure guarantees."""

SAFETY = 1e-9
"""By how much more the parameter x is accounted than drawn with, relative to it."""

TOLERANCE = 1e-3
"""The share of epsilon that the search for a candidate's budget may leave unspent."""

USUAL_SHARE = 1.9
"""About how often a candidate's epsilon goes into that of the choice."""

MOST_EVALUATIONS = 40
"""Far more than any search takes: it closes in by halves where secants do not help."""


def number_of_candidates(mean: float, rng: np.random.Generator) -> int:
    """A draw of K, the number of candidates to choose from; it must stay secret.

    Args:
        mean: expected number of candidates, at least 1; at 1 there is always one.
        rng: source of randomness, used for nothing else that is released.

    Raises:
        UsageError: `mean` is below 1 or not finite.
    """
    _check_mean(mean)
    if mean == 1:
        return 1
    return int(rng.logseries(-math.expm1(-_log_parameter(mean))))


def selection_epsilon(
    events: Sequence[dp.DpEvent], mean: float, delta: float, neighboring: RowRelation
) -> float:
    """An upper bound on the epsilon of releasing the best of K candidates, by Rényi divergences.

    With ``R(a)`` the divergence of order a of one candidate, that of the release is at most
    ``R(a) + min over b of [(1 - 1/b) R(b) + x / b] + log(mean) / (a - 1)``, where b = 1 leaves x.
    For a pure guarantee that is at most twice the epsilon of a candidate. The x is that of the
    distribution from which :func:`number_of_candidates` draws.

    Args:
        events: everything that one candidate releases, or more, whatever its settings are. Its
            score counts if it looks at protected rows. Releasing nothing guarantees nothing.
        mean: expected number of candidates, at least 1; at 1 nothing is chosen, and the epsilon is
            that of one candidate by Rényi divergences.
        delta: in (0, 1).
        neighboring: the relation between data sets.

    Raises:
        UsageError: `mean` is out of range, or an event has no known divergences.
    """
    _check_mean(mean)
    if not events:
        return math.inf
    divergences = renyi_divergences(events, ORDERS, neighboring)
    if mean > 1:
        x = _log_parameter(mean) * (1 + SAFETY)
        extra = float(np.min((1 - 1 / ORDERS) * divergences + x / ORDERS, initial=x))
        divergences = divergences + extra + math.log(_mean(x)) / (ORDERS - 1)
    approximate, _ = rdp.compute_epsilon(ORDERS[:-1], divergences[:-1], delta)
    return min(float(approximate), float(divergences[-1]))


def guarantee(
    releases: Sequence[Release], mean: float, delta: float, neighboring: RowRelation
) -> Guarantee:
    """What may be claimed for the best of K candidates, each of which releases `releases`.

    Raises:
        UsageError: a label is released, `mean` is out of range, or the relation is not defined.
    """
    size = max((release.group_size for release in releases), default=1)
    others: dict[str, float | None] = {
        relation: None
        if size > 1 and relation == "add-or-remove-one"
        else _spent(releases, mean, delta, relation)
        for relation in ROW_RELATIONS
        if relation != neighboring
    }
    texts = tuple(
        f"best of a logarithmic number (mean {mean:g}) of candidates, each {event_text(release)}"
        for release in releases
    )
    epsilon = _spent(releases, mean, delta, neighboring)
    return Guarantee(epsilon, delta, "example", neighboring, "rdp", others, texts)


def _spent(
    releases: Sequence[Release], mean: float, delta: float, neighboring: RowRelation
) -> float:
    if any(release.unit == "label" for release in releases):
        raise UsageError(
            "released labels are drawn once for all candidates, so that choosing among them costs "
            "nothing more; private selection is for releases that each candidate makes anew"
        )
    size = max((release.group_size for release in releases), default=1)
    events = [release.event for release in releases]
    return selection_epsilon(events, mean, delta, group_relation(neighboring, size))


def candidate_budget(
    calibrate: Callable[[Budget], Sequence[Release]], budget: Budget, mean: float
) -> Budget:
    """The largest budget of one candidate with which choosing among K candidates fits `budget`.

    What the choice spends was itself accounted: at most the budget's epsilon, and within TOLERANCE
    of it, unless `calibrate` goes in leaps. At mean 1 the candidate's own Rényi divergences have to
    fit, so that a candidate calibrated by "pld" gets less than the budget.

    Args:
        calibrate: what a candidate that fits a budget releases; about five calls are made.
        budget: of the release; the candidate's has the same delta, relation and accountant.
        mean: expected number of candidates, at least 1.

    Raises:
        UsageError: no budget of a candidate fits, or an argument is out of range.
    """
    _check_mean(mean)
    if math.isinf(budget.epsilon):
        return budget

    def log_excess(log_epsilon: float) -> float:
        releases = calibrate(replace(budget, epsilon=math.exp(log_epsilon)))
        spent = _spent(releases, mean, budget.delta, budget.neighboring)
        return math.log(max(spent, 1e-300) / budget.epsilon)

    x = math.log(budget.epsilon / (USUAL_SHARE if mean > 1 else 1.0))
    slope = 1.0
    fits, overspends = -math.inf, math.inf  # the closest logarithms of epsilon on either side
    last: tuple[float, float] | None = None
    for _ in range(MOST_EVALUATIONS):
        excess = log_excess(x)
        if excess <= 0:
            fits = max(fits, x)
        else:
            overspends = min(overspends, x)
        if -TOLERANCE <= excess <= 0 or overspends - fits < TOLERANCE / 10:
            break
        if last is not None and x != last[0] and math.isfinite(excess - last[1]):
            slope = min(10.0, max(0.1, (excess - last[1]) / (x - last[0])))
        last = x, excess
        x -= min(1.0, max(-1.0, (excess + TOLERANCE / 2) / slope))
        if not fits < x < overspends:
            x = (fits + overspends) / 2
    if math.isinf(fits):
        raise UsageError(
            f"no budget of one candidate lets the choice among {mean:g} candidates on average "
            f"spend at most epsilon {budget.epsilon:g} at delta {budget.delta:.2e}; allow a "
            "larger epsilon or choose among fewer"
        )
    return replace(budget, epsilon=math.exp(fits))


def _check_mean(mean: float) -> None:
    if not 1 <= mean < math.inf:
        raise UsageError(f"the expected number of candidates must be at least 1, got {mean}")


def _log_parameter(mean: float) -> float:
    """The x at which K has that mean, for means above 1.

    ``exp(x / 2) <= (exp(x) - 1) / x <= exp(x)`` says where to look.
    """
    low, high = math.log(mean), 2 * math.log(mean)
    return float(brentq(lambda x: _mean(x) / mean - 1, low, high, xtol=1e-15 * low, rtol=1e-14))


def _mean(x: float) -> float:
    """E[K] of the logarithmic distribution with ``p = 1 - exp(-x)``."""
    return math.expm1(x) / x
