"""Made-up records in the shape of a real study, for tests of everything that reads records."""

import math
from typing import Any

EPSILONS = (0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0)
RR_AUC = (0.578, 0.600, 0.620, 0.659, 0.700, 0.750, 0.780, 0.787, 0.788)
RR_ENTROPY = (5.210, 2.140, 1.350, 1.020, 0.930, 0.880, 0.840, 0.825, 0.823)
SGD_AUC = (0.682, 0.700, 0.705, 0.754, 0.760, 0.768, 0.775, 0.776, 0.776)
SGD_ENTROPY = (0.980, 0.955, 0.948, 0.900, 0.880, 0.865, 0.851, 0.848, 0.847)
BASE_ENTROPY = 0.5623  # nats, of a base rate of 25.6%
BEST = {"auc": 0.800, "log_loss": 0.4442, "normalized_entropy": 0.790}


def metrics(auc: float | None, entropy: float | None) -> dict[str, Any]:
    return {
        "auc": auc,
        "log_loss": None if entropy is None else entropy * BASE_ENTROPY,
        "normalized_entropy": entropy,
        "calibration": None if entropy is None else 1 + (entropy - 0.8) / 5,
        "rows": 12500,
        "positives": 3200,
    }


def guarantee(mechanism: str, epsilon: float) -> dict[str, Any]:
    if mechanism == "randomized-response":
        return {
            "epsilon": epsilon,
            "delta": 0.0,
            "unit": "label",
            "neighboring": "replace-one-label",
            "accountant": "exact",
            "other_relations": dict.fromkeys(("zero-out", "add-or-remove-one", "replace-one")),
            "events": ["RandomizedResponse"],
        }
    return {
        "epsilon": epsilon if math.isinf(epsilon) else epsilon * 0.9999,
        "delta": 3.2e-06,
        "unit": "example",
        "neighboring": "zero-out",
        "accountant": "pld",
        "other_relations": {
            "add-or-remove-one": epsilon * 0.9999,
            "replace-one": epsilon * 1.97,
        },
        "events": ["PoissonSampled(0.04, Gaussian(2.1)) x 750"],
    }


def record(mechanism: str, epsilon: float, seed: int, **changes: Any) -> dict[str, Any]:
    """One done trial; `changes` replace fields."""
    label = changes.get("label", mechanism)
    candidate = changes.get("candidate", {})
    made = {
        "format": 1,
        "id": f"{label}/{epsilon}/{seed}/{candidate}".encode().hex(),
        "status": "done",
        "error": None,
        "study": "quickstart",
        "title": "Predicted click-through rate: what privacy costs",
        "task": "pctr",
        "metric": "auc",
        "mechanism": mechanism,
        "label": label,
        "epsilon": epsilon,
        "seed": seed,
        "candidate": candidate,
        "configuration": {"epsilon": epsilon, "seed": seed, "model": {"tower": [64, 64]}},
        "guarantee": guarantee(mechanism, epsilon),
        "schedule": {"examples": 100000, "batch_size": 4096, "steps": 733, "sampling": "poisson"},
        "rows": {"train": 100000, "validation": 12500, "test": 12500},
        "validation": metrics(0.77, 0.85),
        "test": metrics(0.78, 0.84),
        "best_possible": dict(BEST),
        "notes": [],
        "diagnostics": {"clip_fraction": 0.4},
        "timings": {"train": 3.2},
        "versions": {"jax": "0.10.2"},
        "prng": "threefry2x32",
    }
    return made | changes


def failed(mechanism: str, epsilon: float, seed: int, reason: str, **changes: Any) -> Any:
    nothing = dict.fromkeys(("guarantee", "schedule", "rows", "validation", "test"))
    lost = {"status": "failed", "error": reason, "best_possible": None} | nothing
    return record(mechanism, epsilon, seed, **(lost | changes))


def curve(
    mechanism: str,
    aucs: tuple[float, ...],
    entropies: tuple[float, ...],
    seeds: int,
    **changes: Any,
) -> list[dict[str, Any]]:
    """A curve over EPSILONS whose seeds are spread evenly around the given means."""
    made = []
    for epsilon, auc, entropy in zip(EPSILONS, aucs, entropies, strict=True):
        for seed in range(seeds):
            spread = 0.004 * (seed - (seeds - 1) / 2) * (1 + 0.3 / epsilon**0.5)
            test = metrics(auc + spread, entropy * (1 - spread))
            validation = metrics(auc + spread, entropy)
            made.append(
                record(mechanism, epsilon, seed, test=test, validation=validation, **changes)
            )
    return made


def study(seeds: int = 3) -> list[dict[str, Any]]:
    """Two mechanisms over nine epsilons, and the non-private reference."""
    reference = [
        record("non-private", math.inf, seed, test=metrics(0.789 + 0.0008 * seed, 0.82))
        for seed in range(seeds)
    ]
    return [
        *reference,
        *curve("dp-sgd", SGD_AUC, SGD_ENTROPY, seeds),
        *curve("randomized-response", RR_AUC, RR_ENTROPY, seeds),
    ]
