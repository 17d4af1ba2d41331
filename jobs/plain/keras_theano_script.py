"""The Keras 2 training on Theano that a practitioner would write, compile and fit: the outside baseline, without hpcnn.

    python jobs/plain/keras_theano_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned

common.py says what the CSV and --replay hold. ReLU and pool are Theano's own, as Keras gives them: where cells of a
pool tie, or a ReLU gets exactly 0, their gradient is not that of other frameworks. Keras's Adam adds epsilon before the
bias correction.
"""

# ruff: noqa: E402 (what must be set before Theano is imported)

from __future__ import annotations

import argparse
import collections
import collections.abc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    Array,
    Epochs,
    Recording,
    flags,
    from_torch_layout,
    parse,
    read_rows,
    threads_asked,
    to_torch_layout,
    usable_cores,
    write_replayed,
)

THREADS = threads_asked(usable_cores())
OWN_FLAGS = f"floatX=float32,device=cpu,blas.ldflags=-lopenblas,base_compiledir={Path.home() / '.cache' / 'theano'}"
os.environ.update(  # all are read by the import; of a flag that is there twice Theano takes the last
    OMP_NUM_THREADS=str(THREADS),
    OPENBLAS_NUM_THREADS=str(THREADS),
    THEANO_FLAGS=",".join(filter(None, (OWN_FLAGS, os.environ.get("THEANO_FLAGS")))),
    KERAS_BACKEND="theano",
)
# Keras 2.3.1 looks in `collections` for names that Python has since kept in collections.abc alone
vars(collections).update({name: getattr(collections.abc, name) for name in collections.abc.__all__})
import keras
import theano
from keras import backend as K
from keras import layers

PARTS = ("allocator", "kept_buffers", "openmp", "relu_behind_pool")
TUNING = (
    "memory kept between steps, by glibc and by Theano (allow_gc=False); convolutions, pools and ReLUs on all threads "
    "(openmp=True); pools before the ReLUs that they follow: the same on fewer numbers"
)


class Builder:
    """A network from its input up; `masks`: the inputs that are multiplied where dropout would be, for --replay."""

    def __init__(self, options: argparse.Namespace, kernel: str) -> None:
        self.replayed, self.relu_behind_pool = bool(options.replay), "relu_behind_pool" in options.tuned
        self.kernel = kernel
        self.input = self.top = layers.Input((1, 28, 28))
        self.masks: list[Any] = []

    def convolution(self, filters: int, size: int, pooled: bool = False) -> None:
        relu_last = pooled and self.relu_behind_pool
        settings = {"padding": "same", "kernel_initializer": self.kernel}
        self.top = layers.Conv2D(filters, size, activation=None if relu_last else "relu", **settings)(self.top)
        self.top = layers.MaxPooling2D()(self.top) if pooled else self.top
        self.top = layers.Activation("relu")(self.top) if relu_last else self.top

    def dense(self, units: int, dropout: float) -> None:
        self.top = layers.Dense(units, activation="relu", kernel_initializer=self.kernel)(self.top)
        if self.replayed:
            self.masks.append(layers.Input((units,)))
            self.top = layers.Multiply()([self.top, self.masks[-1]])
        else:
            self.top = layers.Dropout(dropout)(self.top)

    def model(self) -> Any:
        logits = layers.Dense(10, kernel_initializer=self.kernel)(self.top)
        return keras.Model([self.input, *self.masks], logits)


def cnn2d_3layer_fullconnected_3layer(options: argparse.Namespace) -> Any:
    net = Builder(options, "lecun_uniform")
    net.convolution(32, 3)
    net.convolution(48, 3, pooled=True)
    net.convolution(32, 3, pooled=True)
    net.top = layers.Flatten()(net.top)
    net.dense(128, dropout=0.25)
    net.dense(128, dropout=0.25)
    return net.model()


def cnn2d_2layer_fullconnected_2layer(options: argparse.Namespace) -> Any:
    net = Builder(options, "glorot_uniform")
    net.convolution(32, 5, pooled=True)
    net.convolution(64, 5, pooled=True)
    net.top = layers.Flatten()(net.top)
    net.dense(1024, dropout=0.5)
    return net.model()


NETWORKS = {build.__name__: build for build in (cnn2d_3layer_fullconnected_3layer, cnn2d_2layer_fullconnected_2layer)}


def with_norm(optimizer: type[Any]) -> type[Any]:
    """The optimizer that keeps the norm of the gradient it was given last, for --replay."""

    class WithNorm(optimizer):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.norm = K.variable(0.0)

        def get_gradients(self, loss: Any, params: Any) -> Any:
            self.gradients = super().get_gradients(loss, params)
            return self.gradients

        def get_updates(self, loss: Any, params: Any) -> Any:
            updates = super().get_updates(loss, params)
            norm = K.sqrt(sum(K.sum(K.square(gradient)) for gradient in self.gradients))
            return [*updates, K.update(self.norm, norm)]

    return WithNorm


class Clock(keras.callbacks.Callback):
    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self.epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.start()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.end(float(logs["loss"]))


def read_images(path: str) -> tuple[Array, Array]:
    pixels, labels = read_rows(path)
    return pixels.reshape(-1, 1, 28, 28), labels


def compiled(options: argparse.Namespace) -> Any:
    np.random.seed(options.seed)  # which all of Keras's own seeds come from
    theano.config.openmp = "openmp" in options.tuned and THREADS > 1
    theano.config.allow_gc = "kept_buffers" not in options.tuned
    K.set_image_data_format("channels_first")
    model, optimizer = NETWORKS[options.network](options), {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
    settings = {"momentum": options.momentum, "nesterov": options.nesterov} if options.optimizer == "sgd" else {}
    kind = with_norm(optimizer[options.optimizer]) if options.replay else optimizer[options.optimizer]
    model.compile(
        kind(learning_rate=options.learning_rate, **settings),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def turned(parameters: list[Array]) -> list[Array]:
    """Keras on Theano turns the kernels of its convolutions round."""
    return [value[::-1, ::-1] if value.ndim == 4 else value for value in parameters]


def replay(options: argparse.Namespace, recorded: Recording) -> None:
    """Loss and gradient norm of each recorded step go where --out says."""
    model, (x, labels) = compiled(options), read_images(options.train)
    model.set_weights(turned(from_torch_layout(recorded.parameters)))

    def steps() -> Iterator[tuple[float, float]]:
        for rows, masks in recorded.steps:
            loss = model.train_on_batch([x[rows], *masks], labels[rows])
            yield float(loss), float(K.get_value(model.optimizer.norm))

    found = list(steps())
    write_replayed(options.out, found, to_torch_layout(turned(model.get_weights())))


def main() -> None:
    options = parse(flags("Keras on Theano", NETWORKS, "+".join(PARTS), TUNING, THREADS))
    if options.replay:
        replay(options, Recording(options.replay))
        return
    model, (x, labels) = compiled(options), read_images(options.train)
    began = time.perf_counter()
    model._make_train_function()  # else Theano would compile it within the first epoch
    compile_seconds = time.perf_counter() - began
    epochs = Epochs(len(x))
    model.fit(x, labels, batch_size=options.batch, epochs=options.epochs, verbose=0, callbacks=[Clock(epochs)])
    accuracy = None
    if options.test:
        x, labels = read_images(options.test)
        accuracy = float(np.mean(model.predict(x, batch_size=256, verbose=0).argmax(axis=1) == labels))
    process = {"keras_backend": K.backend(), "theano": theano.__version__, "theano_flags": os.environ["THEANO_FLAGS"]}
    found = {"ranks": 1, "threads": THREADS, "compile_seconds": compile_seconds}
    epochs.report(options, accuracy, keras=keras.__version__, **process, **found)


if __name__ == "__main__":
    main()
