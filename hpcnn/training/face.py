"""The person's face: the same few lines for every backend, in a script or a notebook, alone or under mpirun.

    network = get_wrapper("torch")
    network.build_model("cnn2d_3layer_fullconnected_3layer", input_shape=(1, 28, 28), num_classes=10)
    network.compile(optimizer="adam", learning_rate=1e-3)
    network.train("data/train.csv", batch_size=50, n_epochs=10)
    network.evaluate("data/test.csv")

It only turns lines into the settings of the command and runs what the command runs: same results folder, same bits.
Under a launcher every rank runs the same lines; each method is collective and returns the same on all ranks.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.config import RunConfig
from hpcnn.data.agree import attempt
from hpcnn.errors import BackendError, ConfigError
from hpcnn.network.architecture import Architecture
from hpcnn.network.native import Native
from hpcnn.parallel.optimizers import make_optimizer
from hpcnn.records.phases import PhaseClock
from hpcnn.training.arrays import NAME, Arrays, source_of
from hpcnn.training.checkpoint import Checkpoint, checkpoint_path, load_checkpoint, save_checkpoint
from hpcnn.training.chosen import LEARNT_WITH, OPTIMIZER, OTHERS, known_settings
from hpcnn.training.evaluate import Evaluation, all_rows, evaluate, gathered
from hpcnn.training.gpus import claim_gpu
from hpcnn.training.handover import Given, Trained
from hpcnn.training.named_network import GivenNetwork, named_network
from hpcnn.training.predict import model_of, rows_for
from hpcnn.training.process import attempt_threads
from hpcnn.training.run import train
from hpcnn.training.script import OpenWorld, alike, world
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import BACKENDS, check_backend, open_backend

_classes: dict[str, type[Wrapper]] = {}


class Wrapper:
    """A network in one backend. `settings`: those of the command by their names in a run file (seed, threads, out,
    backend_option={...}); `train` takes them too, for one training.

    Errors are those of hpcnn.errors, one line each; of several ranks rank 0 alone prints.
    """

    backend: ClassVar[str]
    open_world: ClassVar[OpenWorld]

    def __init__(self, **settings: Any) -> None:
        self._comm = world(type(self).open_world, str(settings.get("strategy", RunConfig.strategy)))
        self._settings: dict[str, Any] = settings
        self._optimizer: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        self._network = ""
        self._architecture: Architecture | None = None
        self._forget()
        attempt(self._comm, self._check)

    def _check(self) -> None:
        known_settings(type(self).__name__, self._settings, OTHERS)
        check_backend(self.backend, self._config().backend_option)

    def _forget(self) -> None:
        """What was learnt: its state, the network that computes with it, and where it came from."""
        self._checkpoint: Checkpoint | None = None
        self._model: SegmentModel | None = None
        self._origin: str | None = None

    @property
    def rank(self) -> int:
        """Of this process: a script prints where it is 0."""
        return int(self._comm.rank)

    @property
    def architecture(self) -> Architecture | None:
        """What was built or loaded."""
        return self._architecture

    def build_model(self, architecture: GivenNetwork, input_shape: Sequence[int], num_classes: int) -> None:
        """Begin with a new network, without the training of the one before.

        `architecture`: a name that `hpcnn networks` lists, a network file, an Architecture, or a list of layer specs.
        `input_shape`: (channels, height, width). Raises NetworkError.
        """
        config = self._config()
        threads = attempt_threads(config.threads, self._comm).count  # a native layer asks its framework
        if config.device == "cuda":
            claim_gpu(self._comm)

        def complete(layer: Native, shape: tuple[int, ...]) -> Native:
            return open_backend(self.backend, config.backend_option, threads, config.device).complete(layer, shape)

        self._network, self._architecture = attempt(
            self._comm, lambda: named_network(architecture, input_shape, num_classes, complete)
        )
        self._loaded = {}
        self._forget()

    def compile(self, **settings: Any) -> None:
        """Choose the update (default: Adam at 1e-3): optimizer, learning_rate, base_batch, momentum, nesterov, beta1,
        beta2, decay, warmup_epochs, weight_decay, weight_decay_kind, as the command's flags.

        After a training the weights stay, and the optimizer's state begins anew. Raises ConfigError.
        """

        def check() -> RunConfig:
            known_settings("compile", settings, OPTIMIZER)
            return RunConfig(**{"backend": self.backend, **self._settings, **settings})

        config = attempt(self._comm, check)
        self._optimizer = settings
        if self._checkpoint is not None:
            begun = make_optimizer(config, self._checkpoint.architecture.size)
            self._checkpoint = dataclasses.replace(self._checkpoint, optimizer=begun.state, updates=0)

    def train(self, dataset: Any, batch_size: int, n_epochs: int, **settings: Any) -> Trained:
        """Train for `n_epochs` more epochs, in global batches of `batch_size` rows over all ranks.

        `dataset`: the path of a CSV, or arrays (x, y) that every rank holds. `settings`: as those of the class, for
        this training (validation_fraction, run_id, ...); `test` may be arrays too. Leaves a new folder in `out`
        (results/), as the command does. A second call goes on from the weights and the optimizer's state: epochs and
        steps count on, and so do the decay of the rate and its warm-up. Where it fails, all is as it was before.
        """
        begin = time.monotonic()
        config, given = attempt(self._comm, lambda: self._training(dataset, batch_size, n_epochs, settings))
        trained = train(config, self._comm, dataclasses.replace(given, begin=begin, command=sys.argv))
        self._checkpoint, self._model, self._origin = trained.checkpoint, trained.model, str(trained.folder)
        return trained

    def _training(
        self, dataset: Any, batch_size: int, n_epochs: int, settings: Mapping[str, Any]
    ) -> tuple[RunConfig, Given]:
        if self._architecture is None:
            raise ConfigError("there is no network to train: call build_model or load before train")
        known_settings("train", settings, OTHERS)
        wanted = {**self._settings, **settings}.get("test")
        batch_size, n_epochs = (n.item() if isinstance(n, np.generic) else n for n in (batch_size, n_epochs))
        rows, test = source_of(dataset), None if wanted is None else source_of(wanted)
        config = self._config(
            **{**settings, "test": NAME if isinstance(test, Arrays) else test},
            train=NAME if isinstance(rows, Arrays) else rows, global_batch=batch_size, epochs=n_epochs,
            network=self._network, input_shape=",".join(map(str, self._architecture.input_shape)),
            classes=self._architecture.num_classes, resume=self._origin,
        )  # fmt: skip
        given = Given(
            architecture=self._architecture,
            checkpoint=self._checkpoint,
            train=rows if isinstance(rows, Arrays) else None,
            test=test if isinstance(test, Arrays) else None,
        )
        done = self._checkpoint.epoch if self._checkpoint else 0
        return dataclasses.replace(config, epochs=done + config.epochs), given

    def evaluate(self, dataset: Any, **settings: Any) -> Evaluation:
        """Loss and accuracy over all rows (`loss`, `accuracy`, `rows`, `predicted`), the same on every rank.

        `settings`: label_column and header, where those of the class do not fit this CSV.
        """
        return self._evaluated("evaluate", dataset, settings, need_labels=True)

    def predict(self, dataset: Any, **settings: Any) -> NDArray[np.int64]:
        """The class of every row, in order, on every rank. As for `evaluate`, but labels may lack; arrays may be x."""
        return self._evaluated("predict", dataset, settings, need_labels=False).predicted

    def _evaluated(self, method: str, dataset: Any, settings: Mapping[str, Any], *, need_labels: bool) -> Evaluation:
        with alike():
            checkpoint = self._trained(method)
            config = self._config(**known_settings(method, settings, ("label_column", "header")))
            rows = rows_for(
                checkpoint.architecture, source_of(dataset), self._comm, label_column=config.label_column,
                header=config.header, need_labels=need_labels,
            )  # fmt: skip
            if self._model is None:
                self._model = model_of(checkpoint, self.backend, config.backend_option, self._comm, config.threads)
        found = evaluate(self._model, rows, checkpoint.normalisation, all_rows(rows), self._comm, PhaseClock())
        return gathered(found, self._comm)

    def _trained(self, method: str) -> Checkpoint:
        if self._checkpoint is None:
            raise ConfigError(f"there is no trained network to {method}: call train or load before {method}")
        return self._checkpoint

    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint.h5 that any backend and the command read. Rank 0 writes, whole or not at all."""

        def write() -> None:
            checkpoint = self._trained("save")
            if self.rank == 0:
                save_checkpoint(checkpoint_path(Path(path)), checkpoint)

        attempt(self._comm, write)

    def load(self, path: str | PathLike[str]) -> None:
        """Take network, weights, optimizer and scaling of rows from a checkpoint, or a run's folder, of any backend.

        `train` then goes on from there; `compile` after it begins a new optimizer. Raises CheckpointError.
        """
        if not isinstance(path, str | PathLike):
            raise ConfigError(f"load takes the path of a checkpoint or of a run's folder, not {path!r}")
        checkpoint = attempt(self._comm, lambda: load_checkpoint(Path(path)))
        learnt = checkpoint.config
        self._forget()
        self._network, self._architecture, self._checkpoint = learnt.network, checkpoint.architecture, checkpoint
        self._optimizer = {name: getattr(learnt, name) for name in OPTIMIZER}
        self._loaded = {name: getattr(learnt, name) for name in LEARNT_WITH}
        self._origin = str(path)

    def _config(self, **settings: Any) -> RunConfig:
        return RunConfig(**{"backend": self.backend, **self._loaded, **self._settings, **self._optimizer, **settings})


def open_wrapper(backend: str, open_world: OpenWorld, settings: Mapping[str, Any]) -> Wrapper:
    """Collective. The wrapper of a backend; the world is open before anything is refused, so that it is said once."""
    world(open_world, str(settings.get("strategy", RunConfig.strategy)))
    with alike():
        chosen = wrapper_class(backend, open_world)
    return chosen(**settings)


def wrapper_class(backend: str, open_world: OpenWorld) -> type[Wrapper]:
    """TorchWrapper and its like. Raises BackendError for a backend that is unknown; it need not be installed."""
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise BackendError(f"backend {backend!r} is unknown: choose from {', '.join(BACKENDS)}")
    if backend not in _classes:
        fields = {"backend": backend, "open_world": staticmethod(open_world), "__doc__": Wrapper.__doc__}
        _classes[backend] = type(f"{backend.capitalize()}Wrapper", (Wrapper,), fields)
    return _classes[backend]
