"""Caffe, imported quietly and alone, and the BLAS that it computes with.

The package's own __init__ imports scikit-image and SciPy for classifiers and detectors that are not ours. The library
below it, caffe._caffe, is all that is wanted here; whoever imports caffe afterwards gets the whole, over the same
library.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import sys
from types import ModuleType
from typing import Any

from hpcnn.errors import BackendError
from hpcnn.wrappers.import_alone import during

_PACKAGES = {
    "libopenblas": "libopenblas-dev",
    "libprotobuf": "libprotobuf-dev",
    "libglog": "libgoogle-glog-dev",
    "libgflags": "libgflags-dev",
    "libhdf5": "libhdf5-dev",
    "libboost_python": "libboost-python-dev",
    "libboost_filesystem": "libboost-filesystem-dev",
    "libboost_thread": "libboost-thread-dev",
}
"""Debian's packages of what Caffe is linked with; libraries by how their names begin."""


def import_caffe(module: str = "_caffe") -> ModuleType:
    """A module of the package: its library, or `proto.caffe_pb2`, `net_spec`. BackendError where it cannot be had."""
    os.environ.setdefault("GLOG_minloglevel", "2")  # read as the library is loaded: warnings and below are dropped
    name = f"caffe.{module}"
    try:
        if name in sys.modules or "caffe" in sys.modules:
            return importlib.import_module(name)
        spec = importlib.util.find_spec("caffe")
        if spec is None:
            raise ModuleNotFoundError("No module named 'caffe'")
        with during(sys.modules, {"caffe": importlib.util.module_from_spec(spec)}):
            return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise BackendError(f"Caffe cannot be loaded: {_words(error)}: {_remedy(error)}") from None


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _remedy(error: BaseException) -> str:
    again = "make its environment again with `bash env/create.sh classic`"
    library = re.match(r"lib[^\s:]+\.so", str(error))
    if library is None:
        return f"it is half built, or another package of that name: {again}"
    package = next((package for start, package in _PACKAGES.items() if library[0].startswith(start)), None)
    command = f" (Debian, Ubuntu: sudo apt-get install {package})" if package else ""
    return f"install or load what brings that library{command}, or {again}"


def _blas() -> Any:
    """Caffe's library with all that it is linked with, since NumPy brings an OpenBLAS of its own."""
    return ctypes.CDLL(import_caffe().__file__)


def set_blas_threads(count: int) -> None:
    """Of this process. BackendError where Caffe computes with another BLAS than OpenBLAS."""
    blas = _blas()
    if not hasattr(blas, "openblas_set_num_threads"):
        raise BackendError(
            f"Caffe's BLAS takes no number of threads here ({count} were asked for), it is not OpenBLAS: "
            "build Caffe with `bash env/create.sh classic`"
        )
    blas.openblas_set_num_threads(count)


def describe_blas() -> dict[str, Any]:
    """Name, version and threads."""
    blas = _blas()
    if not hasattr(blas, "openblas_get_config"):
        return {"blas": "not OpenBLAS"}
    blas.openblas_get_config.restype = ctypes.c_char_p
    return {"blas": blas.openblas_get_config().decode(), "threads": blas.openblas_get_num_threads()}
