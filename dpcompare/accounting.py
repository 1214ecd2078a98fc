"""The only place where an epsilon is made: what releases guarantee, as dp-accounting sees them.

Events are taken apart, counted, and given the relation that fits groups and labels. The upper bound
of the tight accountant comes from :mod:`dpcompare.privacy_loss`; Rényi divergences are added here.
Calibration of noise: :mod:`dpcompare.calibration`.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import dp_accounting as dp
import numpy as np
from dp_accounting import NeighboringRelation, rdp
from dp_accounting.pld import PLDAccountant
from scipy.special import logsumexp

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.privacy import (
    ROW_RELATIONS,
    AccountantName,
    Guarantee,
    Neighboring,
    Release,
    RowRelation,
    Schedule,
)
from dpcompare.privacy_loss import ComposedLoss, PrivacyLoss, Response
from dpcompare.sampled_gaussian import Direction, SampledGaussian

RELATIONS: dict[Neighboring, NeighboringRelation] = {
    "zero-out": NeighboringRelation.REPLACE_SPECIAL,
    "add-or-remove-one": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": NeighboringRelation.REPLACE_ONE,
    "replace-one-label": NeighboringRelation.REPLACE_ONE,
}
LARGEST_ERROR_SHARE = 0.1
"""The share of delta that rounding errors and cut tails may take."""


class _Atom(NamedTuple):
    """An event that is not made of others, and how often it was released."""

    event: dp.DpEvent
    times: int


def dpsgd_event(noise_multiplier: float, schedule: Schedule, group_size: int = 1) -> dp.DpEvent:
    """What DP-SGD releases over a schedule.

    Args:
        noise_multiplier: standard deviation of the noise on each sum, in units of its sensitivity.
        schedule: Poisson-sampled.
        group_size: rows that are drawn and clipped together.

    Raises:
        UsageError: the batches are shuffled, which has no such guarantee.
    """
    if schedule.sampling != "poisson":
        raise UsageError(
            "gradients of shuffled batches cannot be accounted as Poisson samples (their "
            "guarantee is far weaker); use sampling = poisson"
        )
    probability = schedule.sampling_probability(group_size)
    return sampled_gaussian_event(SampledGaussian(noise_multiplier, probability, schedule.steps))


def sampled_gaussian_event(gaussian: SampledGaussian) -> dp.DpEvent:
    """The same as a dp-accounting event; no noise is no privacy, and q = 1 samples nothing."""
    if gaussian.noise_multiplier == 0:
        return dp.NonPrivateDpEvent()
    event: dp.DpEvent = dp.GaussianDpEvent(gaussian.noise_multiplier)
    if gaussian.sampling_probability < 1:
        event = dp.PoissonSampledDpEvent(gaussian.sampling_probability, event)
    return dp.SelfComposedDpEvent(event, gaussian.steps)


def epsilon(
    event: dp.DpEvent,
    delta: float,
    neighboring: Neighboring,
    accountant: AccountantName = "pld",
) -> float:
    """An upper bound on the epsilon of an event; infinite if it guarantees nothing.

    Args:
        event: any event that dp-accounting knows. Randomized responses are composed one by one
            (dp-accounting 0.6.0 ignores how often one is self-composed).
        delta: in (0, 1).
        neighboring: the relation. Randomized responses are always accounted as replace-one.
        accountant: "pld" or "rdp".

    Raises:
        UsageError: the accountant does not support the event under this relation.
        DpcompareError: rounding errors are too large for this delta.
    """
    atoms = list(_atoms(event))
    if any(isinstance(atom.event, dp.NonPrivateDpEvent) for atom in atoms):
        return math.inf
    responses = [r for r in map(_response, atoms) if r is not None]
    gaussians = [g for g in map(_sampled_gaussian, atoms) if g is not None]
    if len(responses) + len(gaussians) < len(atoms):
        return _any_epsilon(atoms, delta, neighboring, accountant)
    responses_alone = sum(response.times * response.epsilon for response in responses)
    if not gaussians or math.isinf(responses_alone):
        return responses_alone
    if any(g.noise_multiplier == 0 for g in gaussians):
        return math.inf
    if accountant == "rdp":
        return _rdp_epsilon(gaussians, responses, delta, neighboring)
    return _pld_epsilon(gaussians, responses, delta, neighboring)


def renyi_divergences(
    events: Sequence[dp.DpEvent], orders: np.ndarray, neighboring: Neighboring
) -> np.ndarray:
    """Bounds on the Rényi divergences of everything that `events` release together, (orders,).

    Args:
        events: Gaussians, Poisson-sampled or not, and randomized responses, composed or not.
        orders: (orders,), each above 1. At order infinity only pure guarantees are finite.
        neighboring: the relation. Randomized responses are always accounted as replace-one.

    Returns:
        The bounds; infinite where none is known, as at low orders of which dp-accounting's sum
        does not converge.

    Raises:
        UsageError: an event is of another kind.
    """
    atoms = list(_atoms(dp.ComposedDpEvent(list(events))))
    gaussians = [g for g in map(_sampled_gaussian, atoms) if g is not None]
    responses = [r for r in map(_response, atoms) if r is not None]
    for atom in atoms:
        if isinstance(atom.event, dp.NonPrivateDpEvent):
            return np.full(len(orders), math.inf)
        if _sampled_gaussian(atom) is None and _response(atom) is None:
            raise UsageError(
                f"no Rényi divergence is known for {atom.event}; use Gaussians, Poisson-sampled "
                "or not, and randomized responses"
            )
    if any(g.noise_multiplier == 0 for g in gaussians):
        return np.full(len(orders), math.inf)
    with _errors_only(logging.getLogger("absl")):  # where it warns, it answers infinity
        return _divergences(gaussians, responses, orders, neighboring)


@contextmanager
def _errors_only(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def delta_of(gaussian: SampledGaussian, epsilon: float, neighboring: Neighboring) -> float:
    """An upper bound on delta at `epsilon` for a sampled Gaussian, by PLD, rounding included."""
    largest = 0.0
    for direction in directions(neighboring, gaussian.sampling_probability):
        loss = PrivacyLoss([gaussian], [], direction)
        if loss.delta_bound(epsilon) > largest:
            composed = loss.composed(loss.order_at_epsilon(epsilon))
            largest = max(largest, composed.delta(epsilon))
    return largest


def directions(
    neighboring: Neighboring, sampling_probability: float = 0.5
) -> tuple[Direction, ...]:
    """Which losses a relation compares, the one that usually decides first.

    Replacing is symmetric, and so are adding and removing where every row is drawn.
    """
    if RELATIONS[neighboring] == NeighboringRelation.REPLACE_ONE:
        return ("replace",)
    return ("remove",) if sampling_probability == 1 else ("remove", "add")


def group_relation(neighboring: RowRelation, group_size: int) -> RowRelation:
    """The relation by which clipped groups are accounted: replace-one above single rows.

    A row that vanishes from its group leaves the group there with another value, and clipped
    values lie up to twice the clip norm apart, as those of a replaced row do.

    Raises:
        UsageError: add-or-remove-one, which is not defined for groups that are fixed in advance.
    """
    if group_size == 1:
        return neighboring
    if neighboring == "add-or-remove-one":
        raise UsageError(
            "groups are fixed in advance, so adding or removing a row is not defined for them; "
            "use neighboring = zero-out or replace-one"
        )
    return "replace-one"


def guarantee(
    releases: Sequence[Release],
    delta: float,
    neighboring: RowRelation,
    accountant: AccountantName = "pld",
) -> Guarantee:
    """What everything that a mechanism released guarantees together.

    If some release protects whole examples, the guarantee is for examples and counts all of them.
    If all protect labels only, it is for labels, and the row relations are not defined, since the
    features are not protected. No release at all means no guarantee.

    Raises:
        UsageError: `neighboring` is not defined for grouped clipping, or not supported.
    """
    releases = [release for release in releases if any(_atoms(release.event))]
    texts = tuple(event_text(release) for release in releases)
    event = dp.ComposedDpEvent([release.event for release in releases])
    if releases and all(release.unit == "label" for release in releases):
        pure = all(isinstance(a.event, dp.RandomizedResponseDpEvent) for a in _atoms(event))
        return Guarantee(
            epsilon=epsilon(event, delta, "replace-one-label", accountant),
            delta=0.0 if pure else delta,
            unit="label",
            neighboring="replace-one-label",
            accountant="exact" if pure else accountant,
            other_relations=dict.fromkeys(ROW_RELATIONS),
            events=texts,
        )
    group_size = max((release.group_size for release in releases), default=1)
    with_labels = any(release.unit == "label" for release in releases)
    if with_labels and neighboring == "add-or-remove-one":
        raise UsageError(
            "one released label per row shows how many rows there are, so adding or removing a "
            "row is not defined for them; use neighboring = zero-out or replace-one"
        )

    def under(relation: RowRelation) -> float:
        if not releases:
            return math.inf
        return epsilon(event, delta, group_relation(relation, group_size), accountant)

    countable = group_size == 1 and not with_labels
    others: dict[str, float | None] = {
        relation: under(relation) if countable or relation != "add-or-remove-one" else None
        for relation in ROW_RELATIONS
        if relation != neighboring
    }
    return Guarantee(under(neighboring), delta, "example", neighboring, accountant, others, texts)


def _atoms(event: dp.DpEvent, count: int = 1) -> Iterator[_Atom]:
    if isinstance(event, dp.ComposedDpEvent):
        for part in event.events:
            yield from _atoms(part, count)
    elif isinstance(event, dp.SelfComposedDpEvent):
        if event.count > 0:
            yield from _atoms(event.event, count * event.count)
    elif not isinstance(event, dp.NoOpDpEvent):
        yield _Atom(event, count)


def _sampled_gaussian(atom: _Atom) -> SampledGaussian | None:
    event, probability = atom.event, 1.0
    if isinstance(event, dp.PoissonSampledDpEvent):
        event, probability = event.event, event.sampling_probability
    if not isinstance(event, dp.GaussianDpEvent):
        return None
    return SampledGaussian(float(event.noise_multiplier), float(probability), atom.times)


def _response(atom: _Atom) -> Response | None:
    if not isinstance(atom.event, dp.RandomizedResponseDpEvent):
        return None
    return Response(float(atom.event.noise_parameter), atom.event.num_buckets, atom.times)


def _pld_epsilon(
    gaussians: Sequence[SampledGaussian],
    responses: Sequence[Response],
    delta: float,
    neighboring: Neighboring,
) -> float:
    """The largest epsilon of the relation's directions.

    A later direction whose Chernoff bound is below delta at the epsilon of the ones before costs
    no transform.
    """
    largest = 0.0
    probability = min(g.sampling_probability for g in gaussians)
    for direction in directions(neighboring, probability):
        loss = PrivacyLoss(gaussians, responses, direction)
        if largest > 0 and loss.delta_bound(largest) <= delta:
            continue
        composed = loss.composed(loss.order_at_delta(delta))
        value = composed.epsilon(delta)
        _check_error(composed, value, delta)
        largest = max(largest, value)
    return largest


def _check_error(composed: ComposedLoss, epsilon: float, delta: float) -> None:
    error = composed.infinite
    if 0 < epsilon < math.inf:
        error += composed.rounding(epsilon)
    if error > LARGEST_ERROR_SHARE * delta:
        raise DpcompareError(
            f"rounding errors and cut tails of the accountant reach {error:.1e}, more than "
            f"{LARGEST_ERROR_SHARE:.0%} of delta {delta:.1e}; take fewer steps or a larger delta"
        )


def _rdp_epsilon(
    gaussians: Sequence[SampledGaussian],
    responses: Sequence[Response],
    delta: float,
    neighboring: Neighboring,
) -> float:
    orders = np.array(rdp.RdpAccountant().orders)
    with _errors_only(logging.getLogger("absl")):  # where it warns, the order does not count
        divergences = _divergences(gaussians, responses, orders, neighboring)
    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


def _divergences(
    gaussians: Sequence[SampledGaussian],
    responses: Sequence[Response],
    orders: np.ndarray,
    neighboring: Neighboring,
) -> np.ndarray:
    total = np.zeros(len(orders))
    for g in gaussians:
        if RELATIONS[neighboring] == NeighboringRelation.REPLACE_ONE:
            total += g.steps * _replace_one_divergences(g, orders)
        else:
            single = rdp.RdpAccountant(list(orders), RELATIONS[neighboring])
            single.compose(sampled_gaussian_event(g._replace(steps=1)))
            total += g.steps * np.asarray(single._rdp)
    for response in responses:  # a pure guarantee bounds the divergence of every order
        total += response.times * response.epsilon
    return total


def _replace_one_divergences(gaussian: SampledGaussian, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of one sampled Gaussian step when a row is replaced, (orders,).

    dp-accounting's RDP has no Poisson sampling under replace-one. With N(m) a normal of standard
    deviation sigma, the pair that is easiest to tell apart is (1-q) N(0) + q N(1) against
    (1-q) N(0) + q N(-1): fix which other rows were drawn, so that the outputs are mixtures of a
    normal A at 0 with normals U and V at points of the unit ball. For an event S with A(S) =
    Phi(z), Neyman and Pearson give U(S) <= Phi(z + 1/sigma) and V(S) >= Phi(z - 1/sigma), and a
    half-line attains both at once for U at 1 and V at -1. So this pair has the largest
    hockey-stick divergence at every epsilon, hence the largest divergence of every order.
    The integral is a trapezoid sum, which converges exponentially for such functions.
    """
    sigma, q = gaussian.noise_multiplier, gaussian.sampling_probability
    divergences = []
    for order in orders:
        if math.isinf(order):
            divergences.append(math.inf)
            continue
        # The integrand is a sum of normals with means between 1 - 2 * order and 2 * order.
        reach = 2 * order + 12 * sigma
        x = np.linspace(-reach, reach, int(2 * reach / sigma * 12) + 1)
        up = np.logaddexp(_log(1 - q), math.log(q) + (2 * x - 1) / (2 * sigma**2))
        down = np.logaddexp(_log(1 - q), math.log(q) - (2 * x + 1) / (2 * sigma**2))
        density = -(x**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
        integral = logsumexp(density + order * up + (1 - order) * down) + math.log(x[1] - x[0])
        divergences.append(max(0.0, float(integral)) / (order - 1))
    return np.array(divergences)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _any_epsilon(
    atoms: Sequence[_Atom], delta: float, neighboring: Neighboring, accountant: AccountantName
) -> float:
    """dp-accounting at its own settings, for events that are not known better here."""
    relation = RELATIONS[neighboring]
    made: dp.PrivacyAccountant = (
        rdp.RdpAccountant(neighboring_relation=relation)
        if accountant == "rdp"
        else PLDAccountant(neighboring_relation=relation)
    )
    replaced_in_rdp = accountant == "rdp" and relation == NeighboringRelation.REPLACE_ONE
    for atom in atoms:
        is_response = isinstance(atom.event, dp.RandomizedResponseDpEvent)
        # Its RDP of a Gaussian ignores that a replaced row moves a sum by twice the norm.
        if not made.supports(atom.event) or (replaced_in_rdp and not is_response):
            raise UsageError(
                f"the accountant {accountant} cannot account {atom.event} under {neighboring}"
            )
        repeats = atom.times if is_response else 1
        for _ in range(repeats):
            made.compose(atom.event, atom.times // repeats)
    return float(made.get_epsilon(delta))


def event_text(release: Release) -> str:
    """What was released, for people."""
    groups = f", groups of {release.group_size}" if release.group_size > 1 else ""
    parts = [f"{a.times} x {_event_text(a.event, release.name)}" for a in _atoms(release.event)]
    return f"{' and '.join(parts)} (unit: {release.unit}{groups})"


def _event_text(event: dp.DpEvent, name: str = "") -> str:
    if isinstance(event, dp.PoissonSampledDpEvent):
        return (
            f"Poisson sample q={event.sampling_probability:.6g} of {_event_text(event.event, name)}"
        )
    if isinstance(event, dp.GaussianDpEvent):
        return f"Gaussian sigma={event.noise_multiplier:.8g}"
    if isinstance(event, dp.RandomizedResponseDpEvent):
        response = Response(float(event.noise_parameter), event.num_buckets, 1)
        # A pure release is accounted as binary randomized response, whatever was released.
        loss = f"eps={response.epsilon:.8g}"
        return f"{name} {loss}" if name else f"randomized response {loss} k={response.outputs}"
    # With its kind, so that no name reads like an event that is known.
    kind = type(event).__name__
    return f"{name} ({kind})" if name else kind
