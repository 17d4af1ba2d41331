"""Horovod's bindings to frameworks, of which a run imports its own alone: the same operations in each, by name.

An operation is known to Horovod by its name, and not by its order: unnamed ones are numbered in each process, and wait
for each other for ever once counts differ.
"""

from __future__ import annotations

import abc
import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hpcnn.errors import BackendError
from hpcnn.parallel.reducers.contract import Message
from hpcnn.parallel.reducers.worker import Worker
from hpcnn.parallel.waiting import wait_asleep
from hpcnn.wrappers.horovod_built import REMEDY, find_horovod


@dataclass(frozen=True)
class Reduction:
    """One named operation on numbers of a message, in place. `half`: they travel, and are added, as float16."""

    name: str
    numbers: Message
    adasum: bool = False
    half: bool = False


class Binding(abc.ABC):
    """Horovod in one framework. Raises BackendError where it isn't there or doesn't load."""

    framework: ClassVar[str]

    def __init__(self) -> None:
        self.hvd = self._import()

    def _import(self) -> Any:
        built, name = find_horovod(), self.framework
        if built is None:
            raise BackendError(f"--reducer horovod: Horovod isn't installed in this environment: {REMEDY}")
        if name not in built.frameworks:
            raise BackendError(f"--reducer horovod: this is {built}, not for {name}: {REMEDY}")
        version = self._version()
        if built.frameworks[name] != version:
            raise BackendError(f"--reducer horovod: this is {built}, but {name} is {version} here: {REMEDY}")
        try:
            return importlib.import_module(f"horovod.{name}")
        except Exception as error:  # of the loader, of torch or of TensorFlow, each by a type of its own
            lines = str(error).splitlines() or [""]
            raise BackendError(f"--reducer horovod: {built} doesn't load ({lines[0][:300]}): {REMEDY}") from error

    def init(self, world: Any, process_sets: Sequence[Any]) -> None:
        """Collective. Where a process has several bindings, the last one imported would number the process sets."""
        importlib.import_module("horovod.common.process_sets")._setup(self.hvd.mpi_ops._basics)
        self.hvd.init(comm=world, process_sets=process_sets)

    @abc.abstractmethod
    def _version(self) -> str:
        """Of the framework, imported as its wrapper imports it."""

    @abc.abstractmethod
    def start(self, reductions: Sequence[Reduction], process_set: Any) -> Any:
        """Begin all of them; `finish` takes what it returns."""

    @abc.abstractmethod
    def finish(self, started: Any) -> None:
        """Wait until all of them are done, in the memory that was given."""

    def run(self, reductions: Sequence[Reduction], process_set: Any) -> None:
        self.finish(self.start(reductions, process_set))

    def close(self) -> None:
        self.hvd.shutdown()


@dataclass(frozen=True)
class _Handle:
    """Of an operation in torch, waited for like a request of mpi4py. `sent`: a copy of `whole`, or `whole` itself."""

    hvd: Any
    number: int
    sent: Any
    whole: Any

    def Test(self) -> bool:
        return bool(self.hvd.poll(self.number))


class TorchBinding(Binding):
    """In place, on tensors that are the messages' memory."""

    framework = "torch"

    def _version(self) -> str:
        import torch

        return str(torch.__version__)

    def start(self, reductions: Sequence[Reduction], process_set: Any) -> list[_Handle]:
        import torch

        started = []
        for one in reductions:
            whole = torch.from_numpy(one.numbers)
            sent = self.hvd.Compression.fp16.compress(whole)[0] if one.half else whole
            op = self.hvd.Adasum if one.adasum else self.hvd.Sum
            number = self.hvd.allreduce_async_(sent, name=one.name, op=op, process_set=process_set)
            started.append(_Handle(self.hvd, number, sent, whole))
        return started

    def finish(self, started: list[_Handle]) -> None:
        for one in started:
            wait_asleep(one)  # hvd.synchronize would keep a core busy
            self.hvd.synchronize(one.number)
            if one.sent is not one.whole:
                one.whole.copy_(one.sent)


class TensorflowBinding(Binding):
    """Through functions, in which operations keep their names. They return when all is done: a thread calls them for
    what is only to begin."""

    framework = "tensorflow"

    def __init__(self) -> None:
        super().__init__()
        self._functions: dict[str, Any] = {}
        self._worker = Worker("horovod")

    def _version(self) -> str:
        from hpcnn.wrappers.keras_import import import_keras
        from hpcnn.wrappers.tensorflow_import import import_tensorflow

        import_keras("tensorflow")  # which Horovod's module for TensorFlow imports, over whatever was set elsewhere
        return str(import_tensorflow().__version__)

    def start(self, reductions: Sequence[Reduction], process_set: Any) -> Any:
        return self._worker.post(functools.partial(self.run, reductions, process_set))

    def finish(self, started: Any) -> None:
        started.wait()

    def run(self, reductions: Sequence[Reduction], process_set: Any) -> None:
        import tensorflow as tf

        key = reductions[0].name
        if key not in self._functions:
            self._functions[key] = tf.function(functools.partial(self._added, tuple(reductions), process_set))
        for one, found in zip(reductions, self._functions[key](*[one.numbers for one in reductions]), strict=True):
            one.numbers[:] = found.numpy()

    def _added(self, reductions: Sequence[Reduction], process_set: Any, *numbers: Any) -> list[Any]:
        hvd = self.hvd
        return [
            hvd.allreduce(
                part, name=one.name, ignore_name_scope=True, op=hvd.Adasum if one.adasum else hvd.Sum,
                compression=hvd.Compression.fp16 if one.half else hvd.Compression.none, process_set=process_set,
            )
            for one, part in zip(reductions, numbers, strict=True)
        ]  # fmt: skip

    def close(self) -> None:
        self._worker.close()
        super().close()


BINDINGS: dict[str, type[Binding]] = {
    "torch": TorchBinding,
    "keras_torch": TorchBinding,
    "tensorflow": TensorflowBinding,
    "keras_tensorflow": TensorflowBinding,
}
"""By backend, Keras with what it computes with."""
