"""TensorFlow's own layers, for the tensorflow wrapper: what one holds and gives, asked by calling it."""

from __future__ import annotations

from typing import Any

from hpcnn.network.native import Native
from hpcnn.wrappers.native import Array, completed, found_tensors, make_native, probe, refuse_precision, refuse_state
from hpcnn.wrappers.tensorflow_import import import_tensorflow
from hpcnn.wrappers.tensorflow_layers import to_channels_first, to_channels_last

tf: Any = import_tensorflow()


def asked(layer: Native, made: Any, input_shape: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The output shape of one sample, and the variables by name, of a native layer, which may make them when called."""

    def call(rows: Array) -> object:
        output = made(to_channels_last(tf.convert_to_tensor(rows)))
        return to_channels_first(output).numpy() if tf.is_tensor(output) else output

    output_shape = probe(layer, call, input_shape)
    trained = list(getattr(made, "trainable_variables", ()))
    refuse_state(layer, [one.name for one in getattr(made, "variables", ()) if all(one is not own for own in trained)])
    others = {one.name: one.dtype.name for one in trained if one.dtype != tf.float32}
    refuse_precision(layer, others)
    return output_shape, {one.name.split(":")[0].replace("/", "."): one for one in trained}


def completed_by_tensorflow(layer: Native, input_shape: tuple[int, ...]) -> Native:
    """The spec with its tensors and output shape."""
    found = [asked(layer, make_native(layer, "tensorflow"), input_shape) for _ in range(2)]
    values = [{name: variable.numpy() for name, variable in own.items()} for _, own in found]
    return completed(layer, found_tensors(values), found[0][0])
