"""The training loop that a practitioner would write in Caffe, by its solver: the outside baseline, without hpcnn.

    python jobs/plain/caffe_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned

common.py says what the CSV and --replay hold. Rows go into Input layers, so that an epoch's last batch may be smaller.
Caffe's Adam adds epsilon before the bias correction.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from common import Array, Epochs, Recording, flags, parse, read_rows, usable_cores, write_replayed

BOTH = "allocator+relu_behind_pool"
TUNING = (
    "memory kept between steps (glibc), and pools before the ReLUs that they follow: the same sums on fewer numbers"
)


@dataclass(frozen=True)
class Network:
    """Convolutions of `size`, pooled where `pooled` says so, then dense layers with dropout between them."""

    size: int
    filters: Sequence[int]
    pooled: Sequence[bool]
    units: Sequence[int]
    rate: float
    variance_norm: str
    """Of the xavier filler: by FAN_IN it is LeCun's, by AVERAGE Glorot's."""


NETWORKS = {
    "cnn2d_3layer_fullconnected_3layer": Network(3, (32, 48, 32), (False, True, True), (128, 128, 10), 0.25, "FAN_IN"),
    "cnn2d_2layer_fullconnected_2layer": Network(5, (32, 64), (True, True), (1024, 10), 0.5, "AVERAGE"),
}
SOLVERS = {"adam": "Adam", "sgd": "SGD", "nesterov": "Nesterov"}


def import_caffe(threads: int) -> ModuleType:
    """OpenBLAS reads its threads, and glog what it may say, as they are loaded with it."""
    os.environ.update(OPENBLAS_NUM_THREADS=str(threads), GLOG_minloglevel="2")
    import caffe

    caffe.set_mode_cpu()
    module: ModuleType = caffe
    return module


def described(caffe: ModuleType, network: Network, options: argparse.Namespace, training: bool) -> str:
    """The prototxt; in training with a loss, and dropout that is Caffe's own or, for --replay, by masks."""
    L, P, net = caffe.layers, caffe.params, caffe.NetSpec()
    filler = {
        "weight_filler": {"type": "xavier", "variance_norm": getattr(P.Filler, network.variance_norm)},
        "bias_filler": {"type": "constant"},
    }
    pool = {"kernel_size": 2, "stride": 2, "pool": P.Pooling.MAX}
    net.data = x = L.Input(shape={"dim": [options.batch, 1, 28, 28]})
    for place, (filters, pooled) in enumerate(zip(network.filters, network.pooled, strict=True), start=1):
        shape = {"num_output": filters, "kernel_size": network.size, "pad": network.size // 2}
        x = L.Convolution(x, **shape, **filler)
        net[f"conv{place}"] = x
        if pooled and "relu_behind_pool" in options.tuned:
            x = L.Pooling(x, **pool)
            x = L.ReLU(x, in_place=True)
        else:
            x = L.ReLU(x, in_place=True)
            x = L.Pooling(x, **pool) if pooled else x
    for place, units in enumerate(network.units, start=1):
        x = L.InnerProduct(x, num_output=units, **filler)
        net[f"dense{place}"] = x
        if place == len(network.units):
            net.logits = L.Split(x)
        elif not (training and options.replay):
            x = L.ReLU(x, in_place=True)
            x = L.Dropout(x, dropout_ratio=network.rate, in_place=True)
        else:
            net[f"mask{place}"] = L.Input(shape={"dim": [options.batch, units]})
            x = L.Eltwise(L.ReLU(x, in_place=True), net[f"mask{place}"], operation=P.Eltwise.PROD)
    if training:
        net.label = L.Input(shape={"dim": [options.batch]})
        net.loss = L.SoftmaxWithLoss(net.logits, net.label)
    return str(net.to_proto())


class Training:
    """A solver, its net, and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.caffe = options, import_caffe(options.threads)
        self.caffe.set_random_seed(options.seed)
        kind = "nesterov" if options.nesterov else options.optimizer
        momentum = 0.9 if options.optimizer == "adam" else options.momentum
        with tempfile.TemporaryDirectory() as folder:
            net = self._written(Path(folder, "train.prototxt"), training=True)
            solver = Path(folder, "solver.prototxt")
            solver.write_text(
                f'net: "{net}" type: "{SOLVERS[kind]}" base_lr: {options.learning_rate} lr_policy: "fixed" '
                f"momentum: {momentum} momentum2: 0.999 delta: 1e-8 "
                "display: 0 snapshot_after_train: false solver_mode: CPU"
            )
            self.solver = self.caffe.get_solver(str(solver))
        self.net = self.solver.net

    def _written(self, path: Path, training: bool) -> str:
        path.write_text(described(self.caffe, NETWORKS[self.options.network], self.options, training))
        return str(path)

    def step(self, **inputs: Array) -> float:
        """One update; returns the mean loss of the rows."""
        for name, values in inputs.items():
            blob = self.net.blobs[name]
            blob.reshape(*values.shape)
            blob.data[...] = values
        self.solver.step(1)
        return float(self.net.blobs["loss"].data)

    def train_epoch(self, x: Array, labels: Array, order: np.random.Generator) -> float:
        """Every row once, in a new order; returns the mean loss."""
        rows, total = order.permutation(len(x)), 0.0
        for start in range(0, len(x), self.options.batch):
            batch = rows[start : start + self.options.batch]
            total += self.step(data=x[batch], label=labels[batch]) * len(batch)
        return total / len(x)

    def accuracy(self, x: Array, labels: Array) -> float:
        with tempfile.TemporaryDirectory() as folder:
            net = self.caffe.Net(self._written(Path(folder, "test.prototxt"), training=False), self.caffe.TEST)
        net.share_with(self.net)
        right = 0
        for start in range(0, len(x), 256):
            images = x[start : start + 256]
            net.blobs["data"].reshape(*images.shape)
            answers = net.forward(data=images)["logits"].argmax(axis=1)
            right += int((answers == labels[start : start + 256]).sum())
        return right / len(x)

    @property
    def parameters(self) -> list[Any]:
        return [blob for blobs in self.net.params.values() for blob in blobs]

    def replay(self, x: Array, labels: Array, recorded: Recording) -> Iterator[tuple[float, float]]:
        """Loss and gradient norm of each recorded step."""
        for blob, value in zip(self.parameters, recorded.parameters, strict=True):
            blob.data[...] = value
        norms: list[float] = []
        # before the update, which takes the gradients' place
        self.solver.add_callback(lambda: None, lambda: norms.append(norm(blob.diff for blob in self.parameters)))
        for rows, masks in recorded.steps:
            given = {f"mask{place}": mask for place, mask in enumerate(masks, start=1)}
            loss = self.step(data=x[rows], label=labels[rows], **given)
            yield loss, norms[-1]


def norm(gradients: Iterator[Array]) -> float:
    return float(np.sqrt(sum(np.square(gradient, dtype=np.float64).sum() for gradient in gradients)))


def read_images(path: str) -> tuple[Array, Array]:
    pixels, labels = read_rows(path)
    return pixels.reshape(-1, 1, 28, 28), labels


def main() -> None:
    options = parse(flags("Caffe", NETWORKS, BOTH, TUNING, usable_cores()))
    training, (x, labels) = Training(options), read_images(options.train)
    if options.replay:
        steps = list(training.replay(x, labels, Recording(options.replay)))
        write_replayed(options.out, steps, (blob.data for blob in training.parameters))
        return
    order, epochs = np.random.default_rng(options.seed), Epochs(len(x))
    for _ in range(options.epochs):
        epochs.start()
        epochs.end(training.train_epoch(x, labels, order))
    accuracy = training.accuracy(*read_images(options.test)) if options.test else None
    epochs.report(options, accuracy, caffe=training.caffe.__version__, ranks=1, threads=options.threads)


if __name__ == "__main__":
    main()
