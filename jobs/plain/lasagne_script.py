"""The training that a practitioner would write in Lasagne: the outside baseline. It imports no hpcnn.

    python jobs/plain/lasagne_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned

common.py says what the CSV and --replay hold. ReLU and pool are Theano's own, as Lasagne gives them: where cells of a
pool tie, or a ReLU gets exactly 0, their gradient is not that of other frameworks. Lasagne's Adam adds epsilon before
the bias correction.
"""

# ruff: noqa: E402 (what must be set before Theano is imported)

from __future__ import annotations

import argparse
import os
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import Array, Epochs, Recording, flags, parse, read_rows, threads_asked, usable_cores, write_replayed

THREADS = threads_asked(usable_cores())
OWN_FLAGS = f"floatX=float32,device=cpu,blas.ldflags=-lopenblas,base_compiledir={Path.home() / '.cache' / 'theano'}"
os.environ.update(  # all are read by the import; of a flag that is there twice Theano takes the last
    OMP_NUM_THREADS=str(THREADS),
    OPENBLAS_NUM_THREADS=str(THREADS),
    THEANO_FLAGS=",".join(filter(None, (OWN_FLAGS, os.environ.get("THEANO_FLAGS")))),
)
import theano
import theano.tensor as T
from theano.tensor.signal import pool


def max_pool_2d(input: Any, ds: Any, st: Any, padding: Any, **settings: Any) -> Any:
    return pool.pool_2d(input, ws=ds, stride=st, pad=padding, **settings)


# Lasagne 0.1 imports a module that Theano 1.0.5 no longer has
downsample = types.ModuleType("theano.tensor.signal.downsample")
downsample.__dict__.update(max_pool_2d=max_pool_2d, DownsampleFactorMax=pool.Pool)
sys.modules[downsample.__name__] = downsample
import lasagne
from lasagne import init, layers, nonlinearities, updates

PARTS = ("allocator", "kept_buffers", "openmp", "relu_behind_pool")
TUNING = (
    "memory kept between steps, by glibc and by Theano (allow_gc=False); convolutions, pools and ReLUs on all threads "
    "(openmp=True); pools before the ReLUs that they follow: the same on fewer numbers"
)


class Builder:
    """A network from its input up; `masks`: the inputs that are multiplied where dropout would be, for --replay."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.replayed, self.relu_behind_pool = bool(options.replay), "relu_behind_pool" in options.tuned
        self.input = self.top = layers.InputLayer((None, 1, 28, 28))
        self.masks: list[Any] = []

    def convolution(self, filters: int, size: int, kernel: Any, pooled: bool = False) -> None:
        relu_last = pooled and self.relu_behind_pool
        relu = nonlinearities.linear if relu_last else nonlinearities.rectify
        self.top = layers.Conv2DLayer(self.top, filters, size, W=kernel, pad="same", nonlinearity=relu)
        if pooled:
            self.top = layers.MaxPool2DLayer(self.top, 2)
        if relu_last:
            self.top = layers.NonlinearityLayer(self.top, nonlinearities.rectify)

    def dense(self, units: int, kernel: Any, dropout: float) -> None:
        self.top = layers.DenseLayer(self.top, units, W=kernel)  # its nonlinearity is the ReLU
        if self.replayed:
            self.masks.append(layers.InputLayer((None, units)))
            self.top = layers.ElemwiseMergeLayer([self.top, self.masks[-1]], T.mul)
        else:
            self.top = layers.DropoutLayer(self.top, dropout)

    def classes(self, kernel: Any) -> None:
        self.top = layers.DenseLayer(self.top, 10, W=kernel, nonlinearity=nonlinearities.softmax)


def cnn2d_3layer_fullconnected_3layer(net: Builder) -> None:
    kernel = init.HeUniform(gain=1.0)  # which makes it LeCun's
    net.convolution(32, 3, kernel)
    net.convolution(48, 3, kernel, pooled=True)
    net.convolution(32, 3, kernel, pooled=True)
    net.dense(128, kernel, dropout=0.25)
    net.dense(128, kernel, dropout=0.25)
    net.classes(kernel)


def cnn2d_2layer_fullconnected_2layer(net: Builder) -> None:
    kernel = init.GlorotUniform()
    net.convolution(32, 5, kernel, pooled=True)
    net.convolution(64, 5, kernel, pooled=True)
    net.dense(1024, kernel, dropout=0.5)
    net.classes(kernel)


NETWORKS = {build.__name__: build for build in (cnn2d_3layer_fullconnected_3layer, cnn2d_2layer_fullconnected_2layer)}


class Training:
    """The network, and the function that takes a step."""

    def __init__(self, options: argparse.Namespace) -> None:
        lasagne.random.set_rng(np.random.RandomState(options.seed))
        theano.config.openmp = "openmp" in options.tuned and THREADS > 1
        theano.config.allow_gc = "kept_buffers" not in options.tuned
        self.options, self.net = options, Builder(options)
        NETWORKS[options.network](self.net)
        began = time.perf_counter()
        self.step = self._compiled()
        self.compile_seconds = time.perf_counter() - began

    def _compiled(self) -> Any:
        """Of images, labels and masks: one update; returns the mean loss, and with --replay the gradient's norm."""
        labels, masks = T.ivector("labels"), [mask.input_var for mask in self.net.masks]
        loss = lasagne.objectives.categorical_crossentropy(layers.get_output(self.net.top), labels).mean()
        parameters = layers.get_all_params(self.net.top, trainable=True)
        gradients = theano.grad(loss, parameters)
        norm = [T.sqrt(sum(T.sum(T.sqr(gradient)) for gradient in gradients))] if self.options.replay else []
        changes = self._updates(gradients, parameters)
        return theano.function([self.net.input.input_var, labels, *masks], [loss, *norm], updates=changes)

    def _updates(self, gradients: list[Any], parameters: list[Any]) -> Any:
        rate, momentum = self.options.learning_rate, self.options.momentum
        if self.options.optimizer == "adam":
            return updates.adam(gradients, parameters, rate)
        if not momentum:
            return updates.sgd(gradients, parameters, rate)
        method = updates.nesterov_momentum if self.options.nesterov else updates.momentum
        return method(gradients, parameters, rate, momentum)

    def train_epoch(self, x: Array, labels: Array, order: np.random.Generator) -> float:
        """Every row once, in a new order; returns the mean loss."""
        rows, total = order.permutation(len(x)), 0.0
        for first in range(0, len(x), self.options.batch):
            batch = rows[first : first + self.options.batch]
            (loss,) = self.step(x[batch], labels[batch])
            total += float(loss) * len(batch)
        return total / len(x)

    def accuracy(self, x: Array, labels: Array) -> float:
        classes = layers.get_output(self.net.top, deterministic=True).argmax(axis=1)
        predict = theano.function([self.net.input.input_var], classes)
        found = [predict(x[first : first + 256]) for first in range(0, len(x), 256)]
        return float(np.mean(np.concatenate(found) == labels))

    def replay(self, x: Array, labels: Array, recorded: Recording) -> Iterator[tuple[float, float]]:
        """Loss and gradient norm of each recorded step."""
        layers.set_all_param_values(self.net.top, turned(recorded.parameters))
        for rows, masks in recorded.steps:
            loss, norm = self.step(x[rows], labels[rows], *masks)
            yield float(loss), float(norm)


def turned(parameters: list[Array]) -> list[Array]:
    """From PyTorch's layout, and back: dense kernels are in x out, and those of convolutions turned round."""
    ways = {1: np.asarray, 2: np.transpose, 4: lambda kernel: kernel[:, :, ::-1, ::-1]}
    return [ways[value.ndim](value) for value in parameters]


def read_images(path: str) -> tuple[Array, Array]:
    pixels, labels = read_rows(path)
    return pixels.reshape(-1, 1, 28, 28), labels.astype(np.int32)


def main() -> None:
    options = parse(flags("Lasagne", NETWORKS, "+".join(PARTS), TUNING, THREADS))
    training, (x, labels) = Training(options), read_images(options.train)
    if options.replay:
        steps = list(training.replay(x, labels, Recording(options.replay)))
        write_replayed(options.out, steps, turned(layers.get_all_param_values(training.net.top)))
        return
    order, epochs = np.random.default_rng(options.seed), Epochs(len(x))
    for _ in range(options.epochs):
        epochs.start()
        epochs.end(training.train_epoch(x, labels, order))
    accuracy = training.accuracy(*read_images(options.test)) if options.test else None
    process = {"theano": theano.__version__, "theano_flags": os.environ["THEANO_FLAGS"], "ranks": 1, "threads": THREADS}
    epochs.report(options, accuracy, lasagne=lasagne.__version__, compile_seconds=training.compile_seconds, **process)


if __name__ == "__main__":
    main()
