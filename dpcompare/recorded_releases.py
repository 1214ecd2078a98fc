"""What a trial released, read back from the sentences of its record.

A record states its events as text (:func:`dpcompare.accounting.event_text`), so what was released
can be accounted again without the mechanism's code, which may have changed or be somewhere else.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from dpcompare.privacy_loss import Response
from dpcompare.sampled_gaussian import SampledGaussian

_RELEASE = re.compile(r"(?P<parts>.+) \(unit: (?P<unit>\w+)(?:, groups of (?P<group_size>\d+))?\)")
_NUMBER = r"[0-9.]+(?:e[+-]?\d+)?"
_GAUSSIAN = re.compile(
    rf"(?P<steps>\d+) x (?:Poisson sample q=(?P<q>{_NUMBER}) of )?"
    rf"Gaussian sigma=(?P<sigma>{_NUMBER})"
)
_RESPONSE = re.compile(rf"(?P<times>\d+) x [^=]+ eps=(?P<epsilon>{_NUMBER})(?: k=\d+)?")
_HALF_UNIT_Q, _HALF_UNIT = 5e-6, 5e-8
"""How far numbers of 6 and of 8 digits are, relative to them, from what they stand for."""


class Released(NamedTuple):
    """Everything that a trial released together.

    Attributes:
        gaussians: with at least as large a sampling probability as was used and at most as much
            noise: the texts are rounded.
        responses: of labels; each binary, at an epsilon that is at least the one that was used. Any
            pure release reveals at most what such a response does (Kairouz, Oh, Viswanath, arXiv
            1311.0776).
        group_size: rows that were clipped together.
    """

    gaussians: tuple[SampledGaussian, ...]
    responses: tuple[Response, ...]
    group_size: int


def released(events: Sequence[str]) -> Released | None:
    """What the events of a record's guarantee say, or None where one is of another kind.

    Args:
        events: one text per release, as :func:`dpcompare.accounting.guarantee` makes them.
    """
    gaussians: list[SampledGaussian] = []
    responses: list[Response] = []
    group_size = 1
    for text in events:
        release = _RELEASE.fullmatch(text)
        if release is None:
            return None
        group_size = max(group_size, int(release["group_size"] or 1))
        for part in release["parts"].split(" and "):
            if found := _GAUSSIAN.fullmatch(part):
                gaussians.append(_gaussian(found))
            elif found := _RESPONSE.fullmatch(part):
                responses.append(_response(found))
            else:
                return None
    if not gaussians and not responses:
        return None
    return Released(tuple(gaussians), tuple(responses), group_size)


def binary_response(epsilon: float, times: int = 1) -> Response:
    """Binary randomized response of an epsilon above 0."""
    return Response(2 * math.exp(-math.log1p(math.exp(-epsilon)) - epsilon), 2, times)


def _gaussian(found: re.Match[str]) -> SampledGaussian:
    probability = 1.0
    if found["q"] is not None and float(found["q"]) < 1:
        probability = min(1.0, float(found["q"]) * (1 + _HALF_UNIT_Q))
    sigma = float(found["sigma"]) * (1 - _HALF_UNIT)
    return SampledGaussian(sigma, probability, int(found["steps"]))


def _response(found: re.Match[str]) -> Response:
    return binary_response(float(found["epsilon"]) * (1 + _HALF_UNIT), int(found["times"]))
