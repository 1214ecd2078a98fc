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
CONVERSION_ENTROPY = 0.1348  # nats, of a base rate of 3%
CONSTANT_DEVIANCE = 0.3720  # of counts with a mean of .06
CONSTANT_POISSON = 0.2288
LABEL_MECHANISMS = {  # by how much their epsilon has to be larger for the same curve
    "randomized-response": 1.0,
    "randomized-response backward": 2.0,
    "rr-on-bins": 0.8,
    "unbiased-randomizer": 1.4,
    "laplace": 3.5,
}


def metrics(auc: float | None, entropy: float | None) -> dict[str, Any]:
    return {
        "auc": auc,
        "log_loss": None if entropy is None else entropy * BASE_ENTROPY,
        "normalized_entropy": entropy,
        "calibration": None if entropy is None else 1 + (entropy - 0.8) / 5,
        "rows": 12500,
        "positives": 3200,
    }


def conversion_scores(entropy: float, auc: float) -> dict[str, Any]:
    """Scores of pcvr, where 3% of the labels are 1."""
    return {
        "auc": auc,
        "average_precision": 0.03 + (auc - 0.5) / 4,
        "log_loss": entropy * CONVERSION_ENTROPY,
        "normalized_entropy": entropy,
        "calibration": 1 + (entropy - 0.96),
        "rows": 12500,
        "positives": 375,
    }


def count_scores(d2: float) -> dict[str, Any]:
    """Scores of pconvs; Poisson loss is half the deviance plus a constant of the labels."""
    deviance = CONSTANT_DEVIANCE * (1 - d2)
    return {
        "poisson_loss": CONSTANT_POISSON + (deviance - CONSTANT_DEVIANCE) / 2,
        "deviance": deviance,
        "d2": d2,
        "calibration": 1.02,
        "rows": 12500,
        "total": 750.0,
    }


def guarantee(mechanism: str, epsilon: float) -> dict[str, Any]:
    if mechanism in LABEL_MECHANISMS:
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


def account_record(
    epsilon: float, label: str, noise_multiplier: float, batch_size: int, **diagnostics: float
) -> dict[str, Any]:
    """One trial of a study of kind "account": noise and a guarantee, and nothing trained."""
    made = record("dp-sgd", epsilon, 0, label=label)
    scores = dict.fromkeys(("validation", "test", "best_possible", "rows"))
    return (
        made
        | scores
        | {
            "schedule": made["schedule"] | {"batch_size": batch_size},
            "diagnostics": {
                "calibrated": {"noise_multiplier": noise_multiplier},
                "noise_on_mean": noise_multiplier / batch_size,
                **diagnostics,
            },
        }
    )


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


def scores_of(task: str, quality: float) -> dict[str, Any]:
    """Scores of a conversion task: quality 0 is the constant, 1 the best there is, -1 is bad."""
    if task == "pconvs":
        return count_scores(0.09 * quality)
    auc = 0.5 + 0.22 / (1 + math.exp(1 - 4 * max(quality, -9.0)))
    return conversion_scores(1 - 0.05 * quality, auc)


def conversions(task: str, seeds: int = 3, **changes: Any) -> list[dict[str, Any]]:
    """Seven curves of a conversion task: no privacy, DP-SGD and five label mechanisms.

    Label mechanisms end near the non-private model, and at small epsilon far below the constant.
    """
    about = {"task": task, "metric": "poisson_loss" if task == "pconvs" else "auc"}
    about |= {"study": task, "title": "Conversions: what privacy costs"}
    about |= {"best_possible": scores_of(task, 1.0)} | changes

    def trial(mechanism: str, epsilon: float, seed: int, quality: float) -> dict[str, Any]:
        test = scores_of(task, quality + 0.02 * (seed - (seeds - 1) / 2))
        diagnostics = {}
        if task == "pcvr" and mechanism in LABEL_MECHANISMS:
            diagnostics = {"effective_examples": 100_000 / (1 + 30 / math.expm1(epsilon) ** 2)}
        values = {"test": test, "validation": test, "diagnostics": diagnostics}
        return record(mechanism, epsilon, seed, **(values | about))

    made = [trial("non-private", math.inf, seed, 0.85) for seed in range(seeds)]
    for mechanism, factor in {"dp-sgd": 0.0, **LABEL_MECHANISMS}.items():
        for epsilon in EPSILONS:
            quality = 0.7 - 0.25 / epsilon**0.4
            if factor:
                quality = 0.84 - 0.6 * factor / epsilon - 0.5 * (factor / epsilon) ** 2
            made += [trial(mechanism, epsilon, seed, quality) for seed in range(seeds)]
    return made


def learning_curve(examples: float) -> float:
    """AUC of a model trained on so many clean labels."""
    return 0.79 - 3 / (examples + 100) ** 0.5


def sample_sizes(ratio: float = 1.0, seeds: int = 3) -> list[dict[str, Any]]:
    """A study of the effective sample size: label mechanisms that do as well as clean labels.

    Args:
        ratio: how many clean labels they are truly worth, over what their records say.
        seeds: of every trial.
    """
    made = []
    for rows in (1_000, 3_000, 10_000, 30_000, 100_000):
        schedule = {"examples": rows, "batch_size": 1024, "steps": 100, "sampling": "shuffle"}
        for seed in range(seeds):
            test = metrics(learning_curve(rows) + 0.001 * (seed - (seeds - 1) / 2), 0.85)
            label = f"non-private {rows:,} rows".replace(",", " ")
            made.append(
                record("non-private", math.inf, seed, label=label, schedule=schedule, test=test)
            )
    for label, share in (("forward", 1.0), ("backward", 0.6)):
        for epsilon in EPSILONS:
            rows = 100_000 * share / (share + 1 / math.expm1(epsilon))
            for seed in range(seeds):
                auc = learning_curve(ratio * rows) + 0.001 * (seed - (seeds - 1) / 2)
                made.append(
                    record(
                        "randomized-response",
                        epsilon,
                        seed,
                        label=label,
                        test=metrics(auc, 0.85),
                        diagnostics={"effective_examples": rows},
                    )
                )
    return made
