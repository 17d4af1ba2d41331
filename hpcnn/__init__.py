"""hpcnn: train one convolutional network in parallel, and find out what the parallelism did.

From Python: `get_wrapper("torch")` or `TorchWrapper()`, and so for each backend. Nothing heavy is imported before.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; the module that has it takes as long to import as Python starts
if TYPE_CHECKING:
    from typing import Any

    from hpcnn.training.face import Wrapper

    TorchWrapper: type[Wrapper]
    TensorflowWrapper: type[Wrapper]
    KerasWrapper: type[Wrapper]

__version__ = "0.1.0"


def get_wrapper(backend: str, **settings: Any) -> Wrapper:
    """The person's face of a backend; `settings` are those of the command (hpcnn.training.face.Wrapper).

    Raises BackendError where it is unknown or not installed, ConfigError for a wrong setting.
    """
    from hpcnn.cluster.launch import open_world
    from hpcnn.training.face import open_wrapper

    return open_wrapper(backend, open_world, settings)


def __getattr__(name: str) -> Any:
    backend = name.removesuffix("Wrapper")
    if backend == name or not backend.istitle():
        raise AttributeError(f"module 'hpcnn' has no attribute {name!r}")
    from hpcnn.cluster.launch import open_world
    from hpcnn.errors import BackendError
    from hpcnn.training.face import wrapper_class

    try:
        return wrapper_class(backend.lower(), open_world)
    except BackendError as error:
        raise AttributeError(f"hpcnn has no {name}: {error}") from None
