"""The training loop: epochs over steps, each a global batch dealt by the order, carried out by the executor."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.dataset import Dataset, aligned_empty
from hpcnn.errors import TrainingError
from hpcnn.network.masks import segment_masks
from hpcnn.parallel.executor import LocalBatch
from hpcnn.records.clocks import clock_offset
from hpcnn.records.heartbeat import Heartbeat
from hpcnn.records.phases import PhaseClock
from hpcnn.records.run_folder import LossRow
from hpcnn.training.checkpoint import Checkpoint
from hpcnn.training.evaluate import Evaluation, evaluate
from hpcnn.training.prepare import Prepared
from hpcnn.training.progress import Progress
from hpcnn.wrappers.contract import Array


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
        self.offset, self.clock_error = clock_offset(comm)
        self._x = aligned_empty((0, *prepared.train.input_shape))

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
                self._clock.set_epoch(self.epoch)
                self._train_epoch(progress)
                self._check_replicas()
                self._check_weights()
                self._validate()
                self.offset, self.clock_error = clock_offset(self._comm)
                self._clock.resolve_waits(self._comm, self.offset)
                after_epoch()
        finally:
            progress.close()
            self._clock.set_epoch(0)

    def _enough(self) -> bool:
        limit = self._prepared.config.max_steps
        return limit is not None and self.step >= limit

    def _train_epoch(self, progress: Progress) -> None:
        prepared = self._prepared
        for batch in self._batches():
            self._heartbeat.doing("step", self.epoch, self.step)
            rate = prepared.rate.at(self.step)
            result = prepared.executor.step(batch, rate)
            self.samples += batch.global_rows
            row = LossRow(self.epoch, self.step, self.samples, rate, result.loss, result.accuracy, result.gradient_norm)
            self.rows.append(row)
            self._check_loss(row)
            self.step += 1
            self.epoch_step = (self.epoch_step + 1) % prepared.order.steps_per_epoch
            progress.step(row)
            if self._enough():
                break

    def _batches(self) -> Iterator[LocalBatch]:
        """This rank's part of each global batch of the epoch, in one buffer that is filled anew each time."""
        prepared, order = self._prepared, self._prepared.order
        for step in range(self.epoch_step, order.steps_per_epoch):
            self._clock.switch("load")
            rows = order.rows(self.epoch, step, prepared.shards)
            x = prepared.train.batch(rows, prepared.normalisation, out=self._buffer(len(rows)))
            masks = segment_masks(prepared.model.segment, prepared.config.seed, self.epoch, rows)
            batch = LocalBatch(x, prepared.train.take_labels(rows), masks, order.batch_size(step))
            self._clock.switch("other")
            yield batch

    def _buffer(self, rows: int) -> Array:
        """Memory of at least `rows` rows, kept from batch to batch."""
        if len(self._x) < rows:
            self._x = aligned_empty((rows, *self._prepared.train.input_shape))
        return self._x

    def _check_loss(self, row: LossRow) -> None:
        if not math.isfinite(row.train_loss):
            self.give_up(f"epoch {row.epoch}, step {row.step}: the loss is {row.train_loss}")

    def _check_weights(self) -> None:
        """The last update of an epoch may have gone where no loss was taken yet."""
        if not np.isfinite(self._prepared.vectors.weights).all():
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
        found = evaluate(prepared.model, dataset, prepared.normalisation, rows, self._comm, self._clock)
        if found.loss is not None and not math.isfinite(found.loss):
            self.give_up(f"epoch {self.epoch}, after {self.step} steps: the {name} loss is {found.loss}")
        return found

    def checkpoint(self) -> Checkpoint:
        """The state as it is now; its vectors are those that train on."""
        prepared = self._prepared
        return Checkpoint(
            architecture=prepared.architecture,
            weights=prepared.vectors.weights,
            optimizer=prepared.optimizer.state,
            updates=prepared.optimizer.updates,
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
            digest = hashlib.blake2b(self._prepared.vectors.weights.tobytes(), digest_size=8).hexdigest()
            digests = self._comm.allgather(digest)
        if len(set(digests)) > 1:
            other = next(rank for rank, theirs in enumerate(digests) if theirs != digests[0])
            error = TrainingError(
                f"epoch {self.epoch}: weights of rank {other} differ from rank 0's: replicas drifted apart; "
                "is every rank on the same kind of machine, library and number of threads?"
            )
            error.agreed = True
            raise error
