"""The training loop that a practitioner would write in TensorFlow without Keras: the outside baseline, without hpcnn.

    python jobs/plain/tensorflow_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned

common.py says what the CSV and --replay hold. Images are channels last, which is TensorFlow's own format on CPUs.
TF_ENABLE_ONEDNN_OPTS=0 in the environment shows what its oneDNN kernels are worth.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence

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

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read by the import
import tensorflow as tf

BOTH = "allocator+epoch_function"
TUNING = "memory kept between steps (glibc), and an epoch's loop inside one tf.function"


def lecun_uniform(fan_in: int, fan_out: int) -> float:
    return math.sqrt(3 / fan_in)


def glorot_uniform(fan_in: int, fan_out: int) -> float:
    return math.sqrt(6 / (fan_in + fan_out))


class Layer(tf.Module):
    """Kernel and bias of a convolution or of a dense layer."""

    def __init__(self, shape: Sequence[int], limit: float) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.random.uniform(shape, -limit, limit))
        self.bias = tf.Variable(tf.zeros(shape[-1:]))


class Network(tf.Module):
    """Convolutions of `size`, pooled where `pooled` says so, then dense layers with dropout between them."""

    def __init__(
        self,
        size: int,
        filters: Sequence[int],
        pooled: Sequence[bool],
        units: Sequence[int],
        rate: float,
        limit_of: Callable[[int, int], float],
    ) -> None:
        super().__init__()
        self.pooled, self.rate = pooled, rate
        shapes = [(size, size, *pair) for pair in zip((1, *filters), filters, strict=False)]
        self.convolutions = [Layer(s, limit_of(size**2 * s[2], size**2 * s[3])) for s in shapes]
        inputs = filters[-1] * (28 >> sum(pooled)) ** 2
        pairs = zip((inputs, *units), units, strict=False)
        self.dense = [Layer(pair, limit_of(*pair)) for pair in pairs]

    @property
    def parameters(self) -> list[tf.Variable]:
        """In the order of the layers; `trainable_variables` would sort by name."""
        return [value for layer in (*self.convolutions, *self.dense) for value in (layer.kernel, layer.bias)]

    def __call__(self, x: tf.Tensor, training: bool = False, masks: Sequence[tf.Tensor] = ()) -> tf.Tensor:
        """Logits; with `masks`, for --replay, dropout is by them."""
        for layer, pooled in zip(self.convolutions, self.pooled, strict=True):
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, layer.kernel, 1, "SAME"), layer.bias))
            x = tf.nn.max_pool2d(x, 2, 2, "VALID") if pooled else x
        x = tf.reshape(x, (-1, self.dense[0].kernel.shape[0]))
        for place, layer in enumerate(self.dense[:-1]):
            x = tf.nn.relu(tf.nn.bias_add(x @ layer.kernel, layer.bias))
            if training:
                x = x * masks[place] if masks else tf.nn.dropout(x, self.rate)
        return tf.nn.bias_add(x @ self.dense[-1].kernel, self.dense[-1].bias)


def cnn2d_3layer_fullconnected_3layer() -> Network:
    return Network(3, (32, 48, 32), (False, True, True), (128, 128, 10), 0.25, lecun_uniform)


def cnn2d_2layer_fullconnected_2layer() -> Network:
    return Network(5, (32, 64), (True, True), (1024, 10), 0.5, glorot_uniform)


NETWORKS = {build.__name__: build for build in (cnn2d_3layer_fullconnected_3layer, cnn2d_2layer_fullconnected_2layer)}


class SGD(tf.Module):
    """Stochastic gradient descent by TensorFlow's own fused update."""

    def __init__(self, parameters: Sequence[tf.Variable], rate: float, momentum: float, nesterov: bool) -> None:
        super().__init__()
        self.parameters, self.rate, self.momentum, self.nesterov = parameters, rate, momentum, nesterov
        self.velocity = [tf.Variable(tf.zeros_like(parameter)) for parameter in parameters]

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        for parameter, velocity, gradient in zip(self.parameters, self.velocity, gradients, strict=True):
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=parameter.handle, accum=velocity.handle, lr=self.rate, grad=gradient, momentum=self.momentum,
                use_nesterov=self.nesterov,
            )  # fmt: skip


class Adam(tf.Module):
    """Adam by TensorFlow's own fused update, with epsilon after the bias correction."""

    def __init__(
        self, parameters: Sequence[tf.Variable], rate: float, beta: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        super().__init__()
        self.parameters, self.rate, self.beta = parameters, rate, beta
        self.mean = [tf.Variable(tf.zeros_like(parameter)) for parameter in parameters]
        self.square = [tf.Variable(tf.zeros_like(parameter)) for parameter in parameters]
        self.powers = [tf.Variable(1.0) for _ in beta]

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        powers = [power.assign(power * beta) for power, beta in zip(self.powers, self.beta, strict=True)]
        # The update adds epsilon before the bias correction: what it takes is the "epsilon hat" of Kingma and Ba, 2015.
        epsilon = 1e-8 * tf.sqrt(1 - powers[1])
        for parameter, m, v, gradient in zip(self.parameters, self.mean, self.square, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle, m=m.handle, v=v.handle, beta1_power=powers[0], beta2_power=powers[1],
                lr=self.rate, beta1=self.beta[0], beta2=self.beta[1], epsilon=epsilon, grad=gradient,
            )  # fmt: skip


class Images:
    """All rows of a CSV in memory."""

    def __init__(self, path: str) -> None:
        pixels, labels = read_rows(path)
        self.pixels, self.labels = tf.constant(pixels.reshape(-1, 28, 28, 1)), tf.constant(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(self.pixels, rows), tf.gather(self.labels, rows)


class Training:
    """Model, optimizer and one step."""

    def __init__(self, options: argparse.Namespace, images: Images) -> None:
        tf.random.set_seed(options.seed)
        self.images, self.size = images, options.batch
        self.network = NETWORKS[options.network]()
        parameters, rate = self.network.parameters, options.learning_rate
        momentum = options.momentum, options.nesterov
        self.optimizer = Adam(parameters, rate) if options.optimizer == "adam" else SGD(parameters, rate, *momentum)
        self.step = tf.function(self.update, jit_compile=options.xla or None, reduce_retracing=not options.xla)
        self.epoch = tf.function(self.steps) if "epoch_function" in options.tuned else self.steps

    def update(self, rows: tf.Tensor) -> tf.Tensor:
        """One update; returns the mean of the losses of its rows."""
        loss, gradients = self.gradients(rows)
        self.optimizer.apply(gradients)
        return loss

    def gradients(self, rows: tf.Tensor, masks: Sequence[tf.Tensor] = ()) -> tuple[tf.Tensor, list[tf.Tensor]]:
        x, labels = self.images.batch(rows)
        with tf.GradientTape() as tape:
            logits = self.network(x, training=True, masks=masks)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tape.gradient(loss, self.network.parameters)

    @tf.function(reduce_retracing=True)
    def replayed(self, rows: tf.Tensor, masks: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """One update with masks that are given; its loss and the gradient's norm."""
        loss, gradients = self.gradients(rows, masks)
        self.optimizer.apply(gradients)
        return loss, tf.linalg.global_norm(gradients)

    def steps(self, order: tf.Tensor) -> tf.Tensor:
        """Steps over the rows in this order; the sum of the losses."""
        total = tf.zeros(())
        for first in tf.range(0, len(self.images), self.size):
            rows = order[first : first + self.size]
            total += self.step(rows) * tf.cast(tf.size(rows), tf.float32)
        return total

    def train_epoch(self) -> float:
        """Every row once, in a new order; returns the mean loss."""
        return float(self.epoch(tf.random.shuffle(tf.range(len(self.images))))) / len(self.images)

    def replay(self, recorded: Recording) -> Iterator[tuple[float, float]]:
        """Loss and gradient norm of each recorded step."""
        for parameter, value in zip(self.network.parameters, from_torch_layout(recorded.parameters), strict=True):
            parameter.assign(value)
        for rows, masks in recorded.steps:
            loss, norm = self.replayed(tf.constant(rows), [tf.constant(mask) for mask in masks])
            yield float(loss), float(norm)

    def weights(self) -> list[Array]:
        return to_torch_layout(parameter.numpy() for parameter in self.network.parameters)


def accuracy(network: Network, images: Images) -> float:
    predict = tf.function(network, reduce_retracing=True)
    found = [predict(images.pixels[first : first + 256]) for first in range(0, len(images), 256)]
    return float(np.mean(np.argmax(np.concatenate(found), axis=1) == images.labels.numpy()))


def main() -> None:
    parser = flags("TensorFlow", NETWORKS, BOTH, TUNING, usable_cores())
    parser.add_argument("--inter-op", type=int, metavar="N", help="operations side by side (default: as --threads)")
    parser.add_argument("--xla", action="store_true", help="compile a step with XLA")
    options = parse(parser)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    # Else operations run side by side on all cores, each on its own thread, however few --threads says.
    tf.config.threading.set_inter_op_parallelism_threads(options.inter_op or options.threads)
    training = Training(options, images := Images(options.train))
    if options.replay:
        write_replayed(options.out, list(training.replay(Recording(options.replay))), training.weights())
        return
    epochs = Epochs(len(images))
    for _ in range(options.epochs):
        epochs.start()
        epochs.end(training.train_epoch())
    test_accuracy = accuracy(training.network, Images(options.test)) if options.test else None
    threads = {
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }
    epochs.report(options, test_accuracy, tensorflow=tf.__version__, ranks=1, **threads)


if __name__ == "__main__":
    main()
