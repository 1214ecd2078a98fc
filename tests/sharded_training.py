"""Training on several devices, run in a process that has them: forced ones of a CPU.

    python -m tests.sharded_training MODE DEVICES OUTPUT [COORDINATOR PROCESS PROCESSES]

Writes the parameters of every device to OUTPUT, a npz file: one array for each leaf and device.
"""

import contextlib
import functools
import sys
from pathlib import Path

from dpcompare_mechanisms.dp_sgd import DPSGD
from dpcompare_mechanisms.non_private import NonPrivate


class ZeroLoss(DPSGD):
    """What moves the parameters is the noise alone."""

    def loss(self, task, logits, released):
        return 0.0 * logits


MECHANISMS = {
    "noise": (ZeroLoss(clip_norm=2.0, noise_multiplier=1.5), "momentum", "always"),
    "groups": (DPSGD(clip_norm=0.5, noise_multiplier=1.0, group_size=4), "momentum", "always"),
    "no clipping": (NonPrivate(), "sgd", "never"),
}
"""With the optimizer and which tables are lazy."""

CHUNK, STEPS, ROWS = 24, 30, 400


class Killed(BaseException):
    """Stands for a kill of the process."""


def main(mode: str, devices: int, output: str, *distributed: str) -> None:
    import jax
    import numpy as np

    if distributed:
        coordinator, process, processes = distributed
        jax.distributed.initialize(coordinator, int(processes), int(process))
    from dpcompare.checkpoints import Checkpoints
    from dpcompare.devices import mesh_of
    from dpcompare.embeddings import EmbeddingTables
    from dpcompare.optimizers import Recipe
    from dpcompare.privacy import Schedule
    from dpcompare.tasks import PCTR
    from dpcompare.trainer import Streams, predict, train
    from tests.networks import random_batch, random_model

    class KilledAtOnce(Checkpoints):
        def save(self, step, state):
            super().save(step, state)
            raise Killed

    found = {}
    for name in MECHANISMS if mode == "all" else [mode]:
        mechanism, optimizer, lazy_noise = MECHANISMS[name]
        model = random_model(EmbeddingTables((7, 300), (0, 1, 1)), (8,))[0]
        features, labels = jax.tree.map(np.asarray, random_batch(model, ROWS))
        schedule = Schedule(ROWS, 40, STEPS, mechanism.sampling)
        recipe = Recipe(optimizer, 0.3, chunk_size=CHUNK, lazy_noise=lazy_noise, evaluations=2)
        looks = []
        streams = Streams(("shared",), ("noise",))

        def look(step, parameters, looks=looks, mechanism=mechanism, model=model, at=features):
            looks.append(predict(mechanism, PCTR, model, parameters, at))

        run = functools.partial(
            train, mechanism, PCTR, model, features, labels, schedule, recipe, streams,
            evaluate=look, mesh=mesh_of(devices),
        )  # fmt: skip
        if name == "groups" and devices > 1 and not distributed:
            folder = Path(output).parent / "checkpoints"
            with contextlib.suppress(Killed):
                run(checkpoints=KilledAtOnce(folder, "trial", 0.0, devices))
            resumed = run(checkpoints=Checkpoints(folder, "trial", 1e9, devices))
            looks.clear()
            for number, leaf in enumerate(jax.tree.leaves(resumed)):
                found[f"resumed/{number}/0"] = np.asarray(leaf)
        parameters = run()
        for number, leaf in enumerate(jax.tree.leaves(parameters)):
            for shard in leaf.addressable_shards:
                found[f"{name}/{number}/{shard.device.id}"] = np.asarray(shard.data)
        for number, prediction in enumerate(looks):
            found[f"{name}/look {number}/0"] = prediction
    np.savez(output, **found)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
