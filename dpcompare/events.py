"""What dp-accounting events are made of."""

import math
from collections.abc import Iterator, Sequence

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SelfComposedDpEvent,
)

from dpcompare.composition import Counted
from dpcompare.errors import UsageError
from dpcompare.privacy_loss import RandomizedResponse, SampledGaussian

Part = tuple[DpEvent, int]


def parts_of(event: DpEvent) -> list[Part]:
    """The distinct events that `event` is composed of, with counts; free ones are left out."""
    counts: list[Part] = []
    for part, times in _walk(event, 1):
        for index, (known, count) in enumerate(counts):
            if known == part:
                counts[index] = (known, count + times)
                break
        else:
            counts.append((part, times))
    return counts


def _walk(event: DpEvent, times: int) -> Iterator[Part]:
    if isinstance(event, NoOpDpEvent):
        return
    if isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from _walk(part, times)
    elif isinstance(event, SelfComposedDpEvent):
        if event.count < 1:
            raise UsageError(f"{name_of(event)} must be composed at least once, got {event.count}")
        yield from _walk(event.event, times * event.count)
    elif isinstance(event, PoissonSampledDpEvent):
        probability = event.sampling_probability
        if not 0 <= probability <= 1:
            raise UsageError(f"a sampling probability must be from 0 to 1, got {probability}")
        if probability == 1:
            yield from _walk(event.event, times)
        elif probability > 0:
            yield event, times
    elif isinstance(event, RandomizedResponseDpEvent):
        if not (0 <= event.noise_parameter <= 1 and event.num_buckets >= 1):
            raise UsageError(f"not a randomized response: {event}")
        if event.noise_parameter < 1 and event.num_buckets > 1:
            yield event, times
    elif isinstance(event, DpEvent):
        yield event, times
    else:
        raise UsageError(f"only dp-accounting events can be accounted, got {event!r}")


def is_non_private(part: DpEvent) -> bool:
    """Whether a part releases something without noise."""
    if isinstance(part, PoissonSampledDpEvent):
        return is_non_private(part.event)
    if isinstance(part, RandomizedResponseDpEvent):
        return part.noise_parameter == 0
    if isinstance(part, GaussianDpEvent):
        return part.noise_multiplier == 0
    return isinstance(part, NonPrivateDpEvent)


def is_response(part: Part) -> bool:
    """Whether a part is randomized response."""
    return isinstance(part[0], RandomizedResponseDpEvent)


def loss_sources(parts: Sequence[Part]) -> list[Counted] | None:
    """The parts as loss sources, or None where one is unknown here."""
    sources: list[Counted] = []
    for part, times in parts:
        if isinstance(part, RandomizedResponseDpEvent):
            response = RandomizedResponse(part.noise_parameter, part.num_buckets)
            sources.append((response, times))
        elif isinstance(part, GaussianDpEvent):  # many are one with less noise, exactly
            noise = _noise(part) / math.sqrt(times)
            sources.append((SampledGaussian(noise, 1.0).resolvable(), 1))
        elif isinstance(part, PoissonSampledDpEvent) and isinstance(part.event, GaussianDpEvent):
            gaussian = SampledGaussian(_noise(part.event), part.sampling_probability)
            sources.append((gaussian.resolvable(), times))
        else:
            return None
    return sources


def _noise(gaussian: GaussianDpEvent) -> float:
    if not gaussian.noise_multiplier > 0:
        raise UsageError(f"a noise multiplier must be at least 0: {gaussian}")
    return gaussian.noise_multiplier


def describe(event: DpEvent) -> Iterator[str]:
    """Each part as text."""
    for part, times in parts_of(event):
        if isinstance(part, PoissonSampledDpEvent) and isinstance(part.event, GaussianDpEvent):
            text = (
                f"Gaussian noise of multiplier {part.event.noise_multiplier:.6g} on a Poisson "
                f"sample of probability {part.sampling_probability:.6g}"
            )
        elif isinstance(part, GaussianDpEvent):
            text = f"Gaussian noise of multiplier {part.noise_multiplier:.6g}"
        elif isinstance(part, RandomizedResponseDpEvent) and part.noise_parameter > 0:
            response = RandomizedResponse(part.noise_parameter, part.num_buckets)
            strength = response.span(True, 0.0)[1]
            text = f"randomized response of {part.num_buckets} values, epsilon {strength:.6g}"
        else:
            text = name_of(part)
        yield f"{text}, {times} times" if times > 1 else text


def name_of(event: DpEvent) -> str:
    """The class of an event, for messages."""
    return type(event).__name__
