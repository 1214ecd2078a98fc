"""What the command line does, as functions: run a study, train one model."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import pandas as pd

from dpcompare import conduct
from dpcompare import study as studies
from dpcompare.configuration import SECRET, Configuration, is_private, plugin_of
from dpcompare.errors import UsageError
from dpcompare.examples import load_dataset
from dpcompare.expansion import expand
from dpcompare.frame import load
from dpcompare.mechanism import Mechanism
from dpcompare.results import Say
from dpcompare.secret_run import SECRET_BYTES, private_run
from dpcompare.trained_model import TrainedModel, of_trial
from dpcompare.trial import train_trial

AnyPath = str | os.PathLike[str]


def run_study(
    study: AnyPath | Mapping[str, Any],
    *,
    data: AnyPath | None = None,
    out: AnyPath | None = None,
    seeds: int | None = None,
    epsilons: Iterable[float] | None = None,
    mechanisms: Iterable[str] | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    devices: int = 1,
    checkpoint_minutes: float = 10.0,
    say: Say = lambda line: None,
) -> pd.DataFrame:
    """Run the trials of a study that are missing, draw its figure, and return all its trials.

    Worker processes import the script that calls this: let it stand below
    ``if __name__ == "__main__":``.

    Args:
        study: a bundled name, a TOML file, or a mapping with the keys of one.
        data: a prepared folder.
        out: the results folder; ``results/STUDY`` by default.
        seeds: runs per mechanism and epsilon.
        epsilons: in place of the study's.
        mechanisms: which of its curves to run.
        workers: worker processes; None for one per core, as far as memory allows.
        retry_failed: run trials again that failed before.
        devices: that share each trial.
        checkpoint_minutes: the time between two checkpoints of a trial.
        say: receives lines for the user.

    Returns:
        One row per trial, as :func:`dpcompare.load` describes it. A failed trial has
        ``status == "failed"``, with its reason in `error`.

    Raises:
        UsageError: the study cannot work.
        DpcompareError: the folder cannot be written, or another run is writing to it.
    """
    for name, value in (("seeds", seeds), ("workers", workers), ("devices", devices)):
        if value is not None:
            _check_whole(name, value, 1)
    _check_minutes(checkpoint_minutes)
    chosen = studies.select(
        studies.load(study),
        data_path=None if data is None else Path(data),
        seeds=seeds,
        epsilons=epsilons,
        mechanisms=mechanisms,
    )
    folder = Path(out) if out is not None else Path("results") / chosen.name
    how = conduct.How(workers, retry_failed, devices, checkpoint_minutes)
    conduct.run(chosen, folder, how, say)
    return load(folder)


def train(
    study: AnyPath | Mapping[str, Any],
    mechanism: str | None = None,
    epsilon: float | None = None,
    *,
    data: AnyPath | None = None,
    seed: int = 0,
    secret_seed: bool = False,
    out: AnyPath | None = None,
    checkpoint_minutes: float = 10.0,
    report: Callable[[float], None] = lambda fraction: None,
) -> TrainedModel:
    """Train one model under one mechanism: one trial of a study, whose model is kept.

    Args:
        study: a bundled name, a TOML file, or a mapping with the keys of one. Its settings hold;
            ``{"task": "pctr", "mechanisms": [{"name": "dp-sgd"}]}`` is a whole study.
        mechanism: which of its curves; not needed if it has one only.
        epsilon: the budget; not needed by a mechanism without privacy, or if the study has one.
        data: a prepared folder.
        seed: names the random streams, as in the study.
        secret_seed: name them by a secret of the operating system instead, for a model that leaves
            the house. Nobody can then repeat the run, nor take its noise off.
        out: a new folder to which the model is exported. A killed run goes on from what it kept in
            ``OUT.private`` beside it, if it is started again with the same arguments.
        checkpoint_minutes: the time between two checkpoints, with `out`.
        report: called with the fraction of the training that is done.

    Returns:
        The model with its guarantee, and the record of its trial.

    Raises:
        UsageError: the arguments do not name one trial, `out` is there already or something else
            in the place of ``OUT.private``, or a released model would hold a vocabulary that its
            guarantee does not cover.
        DpcompareError: training diverged, or data or folder cannot be used.
    """
    _check_whole("seed", seed, 0)
    if secret_seed and seed:
        raise UsageError(f"give either a seed or secret_seed, got seed {seed} and secret_seed")
    _check_minutes(checkpoint_minutes)
    configuration = _one_trial(study, mechanism, epsilon, data)
    configuration["seed"] = SECRET if secret_seed else int(seed)
    if secret_seed:
        _check_vocabulary(configuration)
    if out is None:
        secret = os.urandom(SECRET_BYTES) if secret_seed else b""
        return _model(configuration, report, secret)
    folder = Path(out)
    private = folder.with_name(f"{folder.name}.private")
    if os.path.lexists(folder):
        left = f". Remove {private}: it may hold the secret of that model's noise"
        raise UsageError(
            f"{out} is there already; name a new folder{left if os.path.lexists(private) else ''}"
        )
    with private_run(private, configuration, checkpoint_minutes) as (kept, secret):
        model = _model(kept, report, secret)
        model.save(folder)
    return model


def _check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or too small a one.

    Raises:
        UsageError: it is so.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_minutes(value: Any) -> None:
    """Refuse a time between checkpoints that is none.

    Raises:
        UsageError: it is so.
    """
    if not (isinstance(value, Real) and 0 < float(value) < math.inf):
        raise UsageError(f"checkpoint_minutes must be a finite number above 0, got {value!r}")


def _model(
    configuration: Configuration, report: Callable[[float], None], secret: bytes
) -> TrainedModel:
    trained = train_trial(configuration, report, secret)
    return of_trial(configuration, trained, load_dataset(configuration["data"]))


def _check_vocabulary(configuration: Configuration) -> None:
    """A released model must not hold what its guarantee does not cover.

    Raises:
        UsageError: its vocabulary was learnt from rows that are to be protected as a whole.
    """
    chosen = configuration["mechanism"]
    factory = plugin_of(chosen["name"], chosen["version"]).factory
    protects_rows = factory.gradient is not Mechanism.gradient and is_private(configuration)
    if protects_rows and configuration["model"]["categories"] == "vocabulary":
        raise UsageError(
            "a model with a secret seed is meant to leave the house, and a vocabulary that was "
            "learnt from the training rows would leave with it, outside the guarantee; set "
            'model.categories = "hash"'
        )


def _one_trial(
    study: AnyPath | Mapping[str, Any],
    mechanism: str | None,
    epsilon: float | None,
    data: AnyPath | None,
) -> Configuration:
    """The configuration of the trial that the arguments name."""
    asked = studies.load(study)
    if asked.kind == "account":
        raise UsageError(f"{asked.source} is of kind 'account', which trains nothing")
    chosen = studies.select(
        asked,
        data_path=None if data is None else Path(data),
        seeds=1,
        epsilons=None if epsilon is None else [epsilon],
        mechanisms=None if mechanism is None else [mechanism],
    )
    trials = expand(chosen)
    labels = list(dict.fromkeys(trial["about"]["label"] for trial in trials))
    if len(labels) > 1:
        raise UsageError(
            f"{chosen.source} has several curves; name one as the mechanism: {', '.join(labels)}"
        )
    epsilons = list(dict.fromkeys(str(trial["budget"]["epsilon"]) for trial in trials))
    if len(epsilons) > 1:
        raise UsageError(f"{chosen.source} has several epsilons; name one: {', '.join(epsilons)}")
    if "selection" in trials[0]:
        raise UsageError(
            f"{labels[0]!r} of {chosen.source} is a private selection among random candidates; "
            "train a curve without private_selection"
        )
    if len(trials) > 1:
        lists = ", ".join(trials[0]["about"]["candidate"])
        raise UsageError(
            f"{labels[0]!r} of {chosen.source} compares {len(trials)} candidates ({lists}); run "
            "the study, and train a curve that has one value of each"
        )
    return trials[0]
