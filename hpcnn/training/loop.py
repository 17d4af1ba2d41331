"""The training loop: epochs over steps, each a global batch dealt by the order, carried out by the executor."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.agree import attempt
from hpcnn.data.dataset import Dataset
from hpcnn.errors import TrainingError
from hpcnn.parallel.around import Shares
from hpcnn.parallel.inference import Inference
from hpcnn.parallel.inject import lets_drift
from hpcnn.parallel.parts import LocalBatch, StepResult
from hpcnn.records.clocks import ClockReadings
from hpcnn.records.evidence import SeenReplica, SeenRow
from hpcnn.records.heartbeat import Heartbeat
from hpcnn.records.phases import PhaseClock
from hpcnn.records.run_folder import LossRow
from hpcnn.training.batches import Batches
from hpcnn.training.checkpoint import Checkpoint
from hpcnn.training.evaluate import Evaluation, evaluate
from hpcnn.training.gather import gathered_vectors
from hpcnn.training.prepare import Prepared
from hpcnn.training.progress import Progress


class Trainer:
    """Trains what was prepared. `rows` are the steps done by this run; the same on all ranks but for gradient_norm."""

    def __init__(self, prepared: Prepared, comm: Any, clock: PhaseClock, heartbeat: Heartbeat) -> None:
        self._prepared = prepared
        self._comm = comm
        self._clock = clock
        self._heartbeat = heartbeat
        self.rows: list[LossRow] = []
        self.epoch, self.step, self.samples = prepared.epoch, prepared.step, prepared.samples
        self.epoch_step = prepared.epoch_step
        """Steps done of an epoch that --max-steps cut short, else 0."""
        self.clocks = ClockReadings()
        self.clocks.measure(comm)
        self._batches = Batches(prepared)
        self._step_watched, self._epochs_begun = self.step, 0
        self._watched: tuple[float | None, float | None, float | None] = (None, None, None)
        self._weights = ""
        self._inference = Inference(prepared.parts, prepared.links)

    def fit(self, after_epoch: Callable[[], None]) -> None:
        """All epochs that are left. Every rank calls `after_epoch` when an epoch's rows and times are complete."""
        config, order = self._prepared.config, self._prepared.order
        steps = config.epochs * order.steps_per_epoch
        progress = Progress(
            shown=config.progress and self._comm.rank == 0,
            epochs=config.epochs,
            steps=steps if config.max_steps is None else min(steps, config.max_steps),
            done=self.step,
        )
        try:
            while self.epoch < config.epochs and not self._enough():
                self.epoch += 1
                self._clock.set_epoch(self.epoch if self._settled() else 0)
                self._train_epoch(progress)
                self._check_replicas()
                self._check_weights()
                self._validate()
                self._resolve_waits()
                after_epoch()
        finally:
            progress.close()
            self._clock.set_epoch(0)

    def _enough(self) -> bool:
        limit = self._prepared.config.max_steps
        return limit is not None and self.step >= limit

    def _settled(self) -> bool:
        return len(self.rows) >= self._prepared.config.settle_steps

    def _resolve_waits(self) -> None:
        self.clocks.measure(self._comm)
        self._clock.resolve_waits(self._comm, self.clocks)

    @property
    def samples_before(self) -> int:
        """Rows that were trained before the first step whose time counts."""
        settled = self._prepared.config.settle_steps
        return self.rows[settled - 1].samples if 0 < settled <= len(self.rows) else self._prepared.samples

    def _train_epoch(self, progress: Progress) -> None:
        prepared, first = self._prepared, True
        for epoch_step in range(self.epoch_step, prepared.order.steps_per_epoch):
            if self._clock.epoch != self.epoch and self._settled():
                self._resolve_waits()
                self._clock.set_epoch(self.epoch)
            self._heartbeat.doing("step", self.epoch, self.step)
            self._clock.switch("load")
            batch = self._batches.of_step(self.epoch, epoch_step)
            self._clock.switch("other")
            self._clock.step = self.step
            rate = prepared.rate.at(self.step)
            result = self._first_step(batch, rate) if first else prepared.executor.step(batch, rate)
            first = False
            self.samples += batch.global_rows
            row = LossRow(self.epoch, self.step, self.samples, rate, result.loss, result.accuracy, result.gradient_norm)
            self.rows.append(row)
            self._check_loss(row)
            self.step += 1
            self._heartbeat.loss = row.train_loss
            self.epoch_step = (self.epoch_step + 1) % prepared.order.steps_per_epoch
            progress.step(row)
            if self._enough():
                break

    def _first_step(self, batch: LocalBatch, rate: float) -> StepResult:
        """The first of an epoch; of the first epoch's is kept what this rank brought to the sum, which costs a copy."""
        reducer, self._step_watched, self._watched = self._prepared.links.reducer, self.step, (None, None, None)
        self._epochs_begun += 1
        if not isinstance(reducer, Shares) or self._epochs_begun > 1:
            return self._prepared.executor.step(batch, rate)
        reducer.watch()
        result = self._prepared.executor.step(batch, rate)
        self._watched = reducer.watched()
        return result

    def take_evidence(self) -> tuple[list[SeenRow], SeenReplica]:
        """What rows.csv and replicas.csv have to get from this rank for the epoch that has ended."""
        rows, self._batches.seen = self._batches.seen, []
        rank = self._prepared.rank
        replica, stage, _ = self._prepared.grid.place(rank)
        own, total, share = self._watched
        return rows, SeenReplica(
            rank=rank, replica=replica, stage=stage, epoch=self.epoch, step=self._step_watched, gradient_norm=own,
            sum_norm=total, share=share, weights=self._weights,
        )  # fmt: skip

    def _check_loss(self, row: LossRow) -> None:
        if not math.isfinite(row.train_loss):
            self.give_up(f"epoch {row.epoch}, step {row.step}: the loss is {row.train_loss}")

    def _check_weights(self) -> None:
        """The last update of an epoch may have gone where no loss was taken yet."""
        fine = all(np.isfinite(part.vectors.weights).all() for part in self._prepared.parts.values())
        if self._prepared.grid.pp > 1:
            fine = all(self._comm.allgather(fine))
        if not fine:
            row = self.rows[-1]
            self.give_up(f"epoch {row.epoch}, step {row.step}: its update made weights that are no numbers")

    def give_up(self, what: str) -> NoReturn:
        """Raise TrainingError; for what every rank found alike."""
        error = TrainingError(
            f"{what}, training cannot go on; try a lower --learning-rate than "
            f"{self._prepared.config.learning_rate:g}, or --warmup-epochs"
        )
        error.agreed = True  # losses and weights are the same on every rank
        raise error

    def _validate(self) -> None:
        prepared = self._prepared
        if not prepared.validation_rows_in_all:
            return
        found = self.evaluate("validation", prepared.train, prepared.validation_rows)
        self.rows[-1] = replace(self.rows[-1], validation_loss=found.loss, validation_accuracy=found.accuracy)

    def evaluate(self, name: str, dataset: Dataset, rows: Mapping[int, NDArray[np.int64]]) -> Evaluation:
        """Collective: the network as it is now, on rows of a dataset. TrainingError where the loss is no number."""
        self._heartbeat.doing(name, self.epoch, self.step)
        prepared = self._prepared
        found = evaluate(self._inference, dataset, prepared.normalisation, rows, self._comm, self._clock)
        self._inference.finish()
        if found.loss is not None and not math.isfinite(found.loss):
            self.give_up(f"epoch {self.epoch}, after {self.step} steps: the {name} loss is {found.loss}")
        return found

    def checkpoint(self) -> Checkpoint | None:
        """Collective. The state as it is now, on rank 0 whole, on the others too where each holds all of it, else None.

        Its vectors may be those that train on."""
        prepared = self._prepared
        vectors = gathered_vectors(prepared)
        if vectors is None:
            return None
        return Checkpoint(
            architecture=prepared.architecture,
            weights=vectors.weights,
            optimizer=vectors.state,
            updates=vectors.updates,
            normalisation=prepared.normalisation,
            label_names=tuple(map(str, range(prepared.architecture.num_classes))),
            config=prepared.config,
            rows=prepared.train.rows,
            logical_shards=prepared.logical_shards,
            epoch=self.epoch - (self.epoch_step > 0),
            epoch_step=self.epoch_step,
            step=self.step,
            samples=self.samples,
        )

    def _check_replicas(self) -> None:
        """Replicas add the same bits to the same bits; that they are still equal is checked, not hoped."""
        with self._clock.during("other"):
            digest = hashlib.blake2b(digest_size=8)
            for _, part in sorted(self._prepared.parts.items()):
                digest.update(part.vectors.weights.tobytes())
            self._weights = digest.hexdigest()
            if not lets_drift(self._prepared.config.inject):
                replicas, mine = self._prepared.links.replicas, (self._comm.rank, digest.digest())
                attempt(self._comm, partial(self._check_equal, replicas.allgather(mine)))

    def _check_equal(self, digests: list[tuple[int, bytes]]) -> None:
        """`digests`: rank and weights of each replica of what this rank holds."""
        first = digests[0]
        for rank, digest in digests:
            if digest != first[1]:
                raise TrainingError(
                    f"epoch {self.epoch}: weights of rank {rank} differ from rank {first[0]}'s: replicas drifted "
                    "apart; is every rank on the same kind of machine, library and number of threads?"
                )
