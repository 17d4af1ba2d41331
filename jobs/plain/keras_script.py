"""The Keras training that a practitioner would write, compile and fit: the outside baseline. It imports no hpcnn.

    python jobs/plain/keras_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned
    KERAS_BACKEND=torch python jobs/plain/keras_script.py --train data/train.csv

common.py says what the CSV and --replay hold. Adam is Keras's own, which adds epsilon before the bias correction.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
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
    to_torch_layout,
    usable_cores,
    write_replayed,
)

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # both are read by the import
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import keras
from keras import layers

BACKEND = keras.backend.backend()
ALL = {
    "tensorflow": "allocator+steps_per_execution",
    "torch": "allocator+channels_first",
    "jax": "allocator",
}[BACKEND]
TUNING = "memory kept between steps (glibc); TensorFlow: ten steps in one call; PyTorch: its own memory format"


def image_shape() -> tuple[int, int, int]:
    return (28, 28, 1) if keras.config.image_data_format() == "channels_last" else (1, 28, 28)


def cnn2d_3layer_fullconnected_3layer() -> keras.Sequential:
    ours: dict[str, Any] = {"activation": "relu", "kernel_initializer": "lecun_uniform"}
    return keras.Sequential([
        layers.Input(image_shape()),
        layers.Conv2D(32, 3, padding="same", **ours),
        layers.Conv2D(48, 3, padding="same", **ours), layers.MaxPooling2D(),
        layers.Conv2D(32, 3, padding="same", **ours), layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, **ours), layers.Dropout(0.25),
        layers.Dense(128, **ours), layers.Dropout(0.25),
        layers.Dense(10, kernel_initializer="lecun_uniform"),
    ])  # fmt: skip


def cnn2d_2layer_fullconnected_2layer() -> keras.Sequential:
    return keras.Sequential([
        layers.Input(image_shape()),
        layers.Conv2D(32, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(1024, activation="relu"), layers.Dropout(0.5),
        layers.Dense(10),
    ])  # fmt: skip


NETWORKS = {build.__name__: build for build in (cnn2d_3layer_fullconnected_3layer, cnn2d_2layer_fullconnected_2layer)}


class MaskedDropout(layers.Layer):
    """Dropout by a mask that is given, for --replay; `rows`: the most that a batch has."""

    def __init__(self, rows: int, units: int) -> None:
        super().__init__()
        self.mask = self.add_weight(shape=(rows, units), trainable=False)

    def call(self, x: Any) -> Any:
        return x * self.mask[: keras.ops.shape(x)[0]]

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape  # else Keras would try other numbers of rows

    def set_mask(self, mask: Array) -> None:
        self.mask.assign(np.pad(mask, ((0, self.mask.shape[0] - len(mask)), (0, 0))))


def masked(network: keras.Sequential, rows: int) -> keras.Sequential:
    def of(layer: layers.Layer) -> layers.Layer:
        return MaskedDropout(rows, layer.input.shape[-1]) if isinstance(layer, layers.Dropout) else layer

    return keras.Sequential([layers.Input(network.input_shape[1:]), *map(of, network.layers)])


def with_norm(optimizer: type[Any]) -> type[Any]:
    """The optimizer that keeps the norm of the gradient it was given last, for --replay."""

    class WithNorm(optimizer):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.norm = self.add_variable(shape=(), name="gradient_norm")

        def apply(self, gradients: Any, trainable_variables: Any = None) -> Any:
            squares = [keras.ops.sum(keras.ops.square(gradient)) for gradient in gradients]
            self.norm.assign(keras.ops.sqrt(sum(squares)))
            return super().apply(gradients, trainable_variables)

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
    return pixels.reshape(-1, *image_shape()), labels


def compiled(options: argparse.Namespace, recorded: Recording | None = None) -> keras.Sequential:
    keras.utils.set_random_seed(options.seed)
    network, optimizer = NETWORKS[options.network](), {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
    settings = {"momentum": options.momentum, "nesterov": options.nesterov} if options.optimizer == "sgd" else {}
    kind = optimizer[options.optimizer]
    if recorded:
        network, kind = masked(network, max(len(rows) for rows, _ in recorded.steps)), with_norm(kind)
    network.compile(
        kind(learning_rate=options.learning_rate, **settings),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=True if options.jit_compile else "auto",
        steps_per_execution=10 if "steps_per_execution" in options.tuned else 1,
    )
    return network


def replay(options: argparse.Namespace, recorded: Recording) -> None:
    """Loss and gradient norm of each recorded step go where --out says."""
    network, (x, labels) = compiled(options, recorded), read_images(options.train)
    values = from_torch_layout(recorded.parameters)
    for parameter, value in zip(network.trainable_variables, values, strict=True):
        parameter.assign(value)
    dropouts = [layer for layer in network.layers if isinstance(layer, MaskedDropout)]

    def steps() -> Iterator[tuple[float, float]]:
        for rows, masks in recorded.steps:
            for dropout, mask in zip(dropouts, masks, strict=True):
                dropout.set_mask(mask)
            network.reset_metrics()  # else the loss is the mean over all steps so far
            loss = network.train_on_batch(x[rows], labels[rows])
            yield float(loss), float(keras.ops.convert_to_numpy(network.optimizer.norm))

    found = list(steps())
    values = map(keras.ops.convert_to_numpy, network.trainable_variables)
    write_replayed(options.out, found, to_torch_layout(values))


def set_threads(threads: int) -> None:
    """Each backend's own way; it has to come before the first operation."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    elif BACKEND == "torch":
        import torch

        torch.set_num_threads(threads)
    else:
        os.environ["NPROC"] = str(threads)  # JAX has no call for it: its CPU client reads this


def main() -> None:
    parser = flags("Keras", NETWORKS, ALL, TUNING, usable_cores())
    parser.add_argument("--jit-compile", action="store_true", help="XLA or torch.compile where Keras would not")
    options = parse(parser)
    set_threads(options.threads)
    keras.config.set_image_data_format("channels_first" if "channels_first" in options.tuned else "channels_last")
    if options.replay:
        replay(options, Recording(options.replay))
        return
    network, (x, labels) = compiled(options), read_images(options.train)
    epochs = Epochs(len(x))
    network.fit(x, labels, batch_size=options.batch, epochs=options.epochs, verbose=0, callbacks=[Clock(epochs)])
    accuracy = None
    if options.test:
        x, labels = read_images(options.test)
        accuracy = float(np.mean(network.predict(x, batch_size=256, verbose=0).argmax(axis=1) == labels))
    process = {"keras_backend": BACKEND, "ranks": 1, "threads": options.threads}
    epochs.report(options, accuracy, keras=keras.__version__, **process)


if __name__ == "__main__":
    main()
