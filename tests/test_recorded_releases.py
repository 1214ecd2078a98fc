"""Releases read back from the texts of a record: nothing lost, and rounded to the safe side."""

from pathlib import Path

import dp_accounting as dp
import pytest

from dpcompare.accounting import event_text, sampled_gaussian_event
from dpcompare.label_mechanism import pure_releases
from dpcompare.privacy import Release
from dpcompare.recorded_releases import Released, binary_response, released
from dpcompare.results import ResultsFolder
from dpcompare.sampled_gaussian import SampledGaussian

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"


def read(*releases: Release) -> Released:
    found = released([event_text(release) for release in releases])
    assert found is not None
    return found


@pytest.mark.parametrize(
    "used",
    [
        SampledGaussian(30.498476028442383, 0.04096, 488),
        SampledGaussian(0.8806875348091125, 1024 / 36672493, 5371947),
        SampledGaussian(1 / 3, 1 / 3, 7),
        SampledGaussian(123456.789012345, 2e-9, 1),
        SampledGaussian(2.5, 1.0, 1),
    ],
)
@pytest.mark.parametrize("group_size", [1, 16])
def test_gaussians_lose_their_last_digits_to_the_safe_side(
    used: SampledGaussian, group_size: int
) -> None:
    found = read(Release(sampled_gaussian_event(used), "example", group_size))
    (gaussian,) = found.gaussians
    assert gaussian.steps == used.steps
    assert used.noise_multiplier * (1 - 2e-7) < gaussian.noise_multiplier <= used.noise_multiplier
    above = gaussian.sampling_probability / used.sampling_probability
    assert 1 <= above < 1 + 2e-5 or used.sampling_probability == above == 1
    assert found.responses == ()
    assert found.group_size == group_size


@pytest.mark.parametrize("epsilon", [1e-4, 0.005, 1 / 3, 1.0, 19.0, 50.0])
def test_responses_lose_their_last_digits_to_the_safe_side(epsilon: float) -> None:
    found = read(
        *pure_releases(epsilon, "label histogram"), *pure_releases(0.5, "randomized labels")
    )
    assert [response.times for response in found.responses] == [1, 1]
    assert epsilon <= found.responses[0].epsilon < epsilon * (1 + 2e-7)
    assert found.gaussians == ()


def test_a_response_without_a_name_and_several_parts() -> None:
    event = dp.ComposedDpEvent(
        [
            dp.SelfComposedDpEvent(dp.RandomizedResponseDpEvent(0.5, 4), 3),
            dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 5),
        ]
    )
    found = read(Release(event, "example"))
    assert found.responses[0].times == 3
    assert found.responses[0].outputs == 2
    assert found.responses[0].epsilon == pytest.approx(1.6094379, rel=1e-6)  # log(1 + 4)
    assert found.gaussians[0][1:] == (1.0, 5)


def test_binary_response_has_its_epsilon() -> None:
    for epsilon in (1e-6, 0.1, 1.0, 50.0, 300.0):
        assert binary_response(epsilon).epsilon == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["RandomizedResponse"],
        ["1 x LaplaceDpEvent (unit: example)"],
        ["1 x NonPrivateDpEvent (unit: example)"],
        ["1 x randomized response eps=1"],
        ["1 x randomized response eps=1 (unit: label)", "1 x LaplaceDpEvent (unit: label)"],
        [
            "best of a logarithmic number (mean 3) of candidates, each 4 x Gaussian sigma=1 "
            "(unit: example)"
        ],
    ],
)
def test_what_is_not_known_is_not_guessed(texts: list[str]) -> None:
    assert released(texts) is None


@pytest.mark.parametrize("study", ["quickstart", "pconvs", "groups", "noise-vs-batch"])
def test_committed_records_can_be_read(study: str) -> None:
    folder = ResultsFolder(REFERENCE / study)
    for record in folder.records(folder.plan()):
        if record["guarantee"]["events"]:
            assert released(record["guarantee"]["events"]) is not None, record["guarantee"][
                "events"
            ]


@pytest.mark.parametrize("name", ["noisy sums eps=0.5", "Gaussian sigma=100"])
def test_no_name_makes_an_event_read_like_another_one(name: str) -> None:
    text = event_text(Release(dp.LaplaceDpEvent(0.1), "label", name=name))
    assert released([text]) is None, text
