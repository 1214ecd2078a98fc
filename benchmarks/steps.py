"""Time of a DP-SGD gradient beside that of an ordinary one, as a ratio within one run.

Both variants run on one pinned core, in turn, on the same model, rows and batch: the mean gradient
of ordinary training with dense embedding gradients, and the clipped sum by book-keeping without
noise. Prints the median of each and of their ratio, with the smallest and largest repetition.

    python benchmarks/steps.py --width 598 --batch-size 4096 --repetitions 51
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

# Rows per table of the model "small": 57,387 in all, 0.89 million embedding parameters.
SMALL = (
    1460, 583, 8000, 6000, 305, 24, 3000, 633, 3, 4000, 2500, 8000, 1500,
    27, 2500, 5000, 10, 2000, 1200, 4, 5000, 18, 15, 3000, 105, 2500,
)  # fmt: skip
NUMERIC = 13


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=598)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--repetitions", type=int, default=51)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    variants = build(arguments.width, arguments.depth, arguments.batch_size)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(arguments.repetitions):
        for name, step in variants.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    report(arguments.batch_size, times)


def build(width: int, depth: int, batch_size: int) -> dict[str, Callable[[], object]]:
    """The compiled variants, warmed up, as functions that wait for their result."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dpcompare.clipping import clipped_sum
    from dpcompare.data.dataset import Features
    from dpcompare.embeddings import EmbeddingTables
    from dpcompare.model import Model, Parameters
    from dpcompare.tasks import PCTR

    rng = np.random.default_rng(0)
    model = Model(NUMERIC, EmbeddingTables(SMALL), (width,) * depth)
    parameters = model.init(jax.random.key(0))
    # Skewed ids: log-uniform, so that the first rows of each table are hit most.
    ids = [np.minimum(v - 1, np.exp(rng.random(batch_size) * np.log(v + 1)) - 1) for v in SMALL]
    features = Features(
        jnp.asarray(np.log1p(rng.exponential(5, (batch_size, NUMERIC))).astype(np.float32)),
        jnp.asarray(np.stack(ids, axis=1).astype(np.int32)),
    )
    labels = jnp.asarray((rng.random(batch_size) < 0.25).astype(np.float32))
    present = jnp.ones(batch_size, bool)

    @jax.jit
    def ordinary(p: Parameters) -> Parameters:
        return jax.grad(lambda q: jnp.mean(PCTR.loss(model.logits(q, features), labels)))(p)

    @jax.jit
    def clipped(p: Parameters) -> Parameters:
        return clipped_sum(
            model,
            p,
            features,
            lambda logits: PCTR.loss(logits, labels),
            present,
            lambda norms: jnp.minimum(1.0, 1.0 / norms),
        ).gradient

    variants = {"non-private, dense": ordinary, "clipped sum": clipped}
    for step in variants.values():
        jax.block_until_ready(step(parameters))

    def timed(step: Callable[[Parameters], Parameters]) -> Callable[[], object]:
        return lambda: jax.block_until_ready(step(parameters))

    return {name: timed(step) for name, step in variants.items()}


def report(batch_size: int, times: dict[str, list[float]]) -> None:
    """Examples per second of each variant and the ratio of the second to the first."""
    print(f"{platform.machine()}, Python {platform.python_version()}, one pinned core")
    for name, seconds in times.items():
        speeds = [batch_size / s for s in seconds]
        print(f"{name:<20} {_spread(speeds, '{:,.0f}')} examples/s")
    ordinary, clipped = times.values()
    ratios = [a / b for a, b in zip(ordinary, clipped, strict=True)]
    print(f"{'speed ratio':<20} {_spread(ratios, '{:.3f}')}")


def _spread(values: list[float], form: str) -> str:
    middle, low, high = (form.format(f(values)) for f in (statistics.median, min, max))
    return f"{middle} (median of {len(values)}; {low} to {high})"


if __name__ == "__main__":
    main()
