"""TensorFlow, imported quietly and alone.

As it is imported TensorFlow imports Keras and JAX, where they are installed, for uses that are not ours, which doubles
the time; and it greets on standard error, on every rank, before any setting of its own can keep it from doing so.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from hpcnn.errors import BackendError
from hpcnn.wrappers.contract import CUDA_ENVIRONMENT
from hpcnn.wrappers.import_alone import NO_KERAS_HOME, during, without

_GUESTS = ("keras", "jax")
_GREETINGS = (
    b"All log messages before absl::InitializeLog()",
    b"oneDNN custom operations are on",
    b"rebuild TensorFlow",
)


def import_tensorflow() -> ModuleType:
    """The module; later calls and imports find it as it is. What was not imported with it can be, afterwards."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    with during(os.environ, NO_KERAS_HOME), without(_GUESTS), _without_greetings():
        return importlib.import_module("tensorflow")


def set_tensorflow_up(options: Any, threads: int | None) -> None:
    """Threads and determinism of this process. BackendError where TensorFlow runs already and otherwise."""
    tf: Any = import_tensorflow()
    config = tf.config.threading
    asked = {"intra": options.intra_op_threads or threads, "inter": options.inter_op_threads or threads}
    for name, count in asked.items():
        if count is None or getattr(config, f"get_{name}_op_parallelism_threads")() == count:
            continue
        try:
            getattr(config, f"set_{name}_op_parallelism_threads")(count)
        except RuntimeError:
            now = getattr(config, f"get_{name}_op_parallelism_threads")()
            raise BackendError(
                f"TensorFlow runs in this process already, with {now} {name}-op threads (0: as many as it likes), not "
                f"{count}: start another process"
            ) from None
    if options.deterministic:
        tf.config.experimental.enable_op_determinism()
        tf.random.set_seed(0)  # else a native layer that starts its weights at random is refused


def see_gpu(wanted: bool) -> None:
    """TensorFlow computes on the one GPU that this process sees, or sees none: of itself it takes all that there are.

    BackendError where there is none, and where TensorFlow has begun otherwise."""
    tf: Any = import_tensorflow()
    gpus = tf.config.list_physical_devices("GPU") if tf.test.is_built_with_cuda() else []
    if wanted and not gpus:
        raise BackendError(
            f"--device cuda: TensorFlow {tf.__version__} sees no GPU: {CUDA_ENVIRONMENT}, or leave --device out"
        )
    try:
        if not wanted:
            if gpus:
                tf.config.set_visible_devices([], "GPU")
            return
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        tf.config.experimental.enable_tensor_float_32_execution(False)  # 10 bits of a float32's 23
    except RuntimeError:
        raise BackendError(
            f"TensorFlow runs in this process already, not with --device {'cuda' if wanted else 'cpu'}: "
            "start another process"
        ) from None
    if len(gpus) > 1:
        raise BackendError(
            f"--device cuda: TensorFlow sees {len(gpus)} GPUs in this process, of which a rank takes one: start another"
        )


@contextlib.contextmanager
def _without_greetings() -> Iterator[None]:
    """What C++ writes to standard error is held back, and all of it but the greetings given out afterwards."""
    try:
        before = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if not any(greeting in line for greeting in _GREETINGS):
                    os.write(2, line)
