"""Theano, imported with our flags beside the user's, in silence, and with one store of modules for all processes.

THEANO_FLAGS are read as Theano is imported, once a process. The user's, from the environment and over them from the run
file, hold; ours are added. Settings in the home directory (.theanorc) are not read. As it is imported Theano would
start MPI, where mpi4py is installed, for uses that are not ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.metadata
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.errors import BackendError
from hpcnn.wrappers.import_alone import during, without
from hpcnn.wrappers.theano_store import ModuleStore, compile_error, locked

_FIXED = {"floatX": "float32", "device": "cpu"}
_FITTING = {
    "linker": ("cvm", "vm", "c|py", "c"),
    "mode": ("Mode", "FAST_RUN", "NanGuardMode"),
    "profile": ("False", "false", "0"),
    "compute_test_value": ("off",),
}
"""With other values Theano runs or checks operations without their C code, which some of ours alone have."""
_GUESTS = ("mpi4py",)
_BASE = "import sys; sys.modules['mpi4py'] = None; import theano.gof.cutils"
"""Compiles the two modules of Theano's own, without which nothing of it runs."""

_ROOM = 1 << 20
"""Bytes: what Theano's own modules take, and some."""


def parse_flags(text: str) -> dict[str, str]:
    """As Theano does: key=value, key=value, of which the last one of a key holds."""
    words = shlex.shlex(text, posix=True)
    words.whitespace, words.whitespace_split = ",", True
    try:
        pairs = [word.strip().partition("=") for word in words if word.strip()]
    except ValueError as error:
        raise BackendError(f"THEANO_FLAGS {text!r}: {error}: mend its quotation marks") from None
    for key, sign, _ in pairs:
        if not sign or not key:
            raise BackendError(f"THEANO_FLAGS: {key + sign!r} is no KEY=VALUE: write it so, or leave it out")
    return {key: value for key, _, value in pairs}


def joined(flags: Mapping[str, str]) -> str:
    return ",".join(f"{key}={shlex.quote(value) if set(value) & set(', ') else value}" for key, value in flags.items())


class _Running:
    """Of this process: the flags that were asked for, all that Theano got, and the modules."""

    asked: dict[str, str] | None = None
    flags: dict[str, str]
    store: ModuleStore | None = None
    threads: int | None = None


def set_theano_up(theano_flags: str, threads: int | None) -> None:
    """Import Theano, and let it compute with `threads` (None: as its libraries please).

    BackendError where something is missing, or where Theano runs in this process already and otherwise.
    """
    asked = {**parse_flags(os.environ.get("THEANO_FLAGS", "")), **parse_flags(theano_flags)}
    for key, only in _FIXED.items():
        if asked.get(key, only) != only:
            raise BackendError(
                f"THEANO_FLAGS {key}={asked[key]}: this suite computes with {key}={only}: leave {key} out"
            )
    for key, fitting in _FITTING.items():
        if asked.get(key, fitting[0]) not in fitting:
            raise BackendError(f"THEANO_FLAGS {key}={asked[key]}: this suite runs on C code alone: leave {key} out")
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
    if _Running.asked is None:
        _import_theano(asked, openmp=threads is not None and threads > 1)
    elif asked != _Running.asked:
        raise BackendError(
            f"Theano runs in this process already, with THEANO_FLAGS={joined(_Running.asked)!r}, not "
            f"{joined(asked)!r}: start another process"
        )
    if threads is not None:
        _Running.threads = threads
        for library, call in (
            (_openblas(_Running.flags), "openblas_set_num_threads"),
            (_openmp(), "omp_set_num_threads"),
        ):
            if hasattr(library, call):
                getattr(library, call)(threads)


def import_theano() -> Any:
    """The module, set up with defaults where nobody has yet."""
    if _Running.asked is None:
        set_theano_up("", None)
    return sys.modules["theano"]


def module_store() -> ModuleStore:
    import_theano()
    assert _Running.store is not None
    return _Running.store


def theano_facts() -> dict[str, Any]:
    """For run.json."""
    theano = import_theano()
    shown = {key: value for key, value in _Running.flags.items() if key != "compiledir"}
    library = _openblas(_Running.flags)
    blas = shown["blas.ldflags"]
    if hasattr(library, "openblas_get_config"):
        library.openblas_get_config.restype = ctypes.c_char_p
        blas = library.openblas_get_config().decode()
    return {
        "theano": theano.__version__,
        "theano_flags": joined(shown),
        "threads": _Running.threads,
        "openmp": bool(theano.config.openmp),
        "blas": blas,
    }


def _import_theano(asked: dict[str, str], openmp: bool) -> None:
    """`openmp`: whether convolutions share their images among threads, where nothing else was asked for; else only the
    products inside are shared, which is slower by a quarter in large batches and by more where a core is busy."""
    if tuple(int(part) for part in np.__version__.split(".")[:2]) >= (1, 24):
        raise BackendError(
            f"Theano 1.0.5 needs NumPy below 1.24, and this environment has {np.__version__}: make its own with "
            "`bash env/create.sh classic`"
        )
    flags = {**_FIXED, "blas.ldflags": "-lopenblas", "openmp": str(openmp), **asked}
    compiler = asked.get("cxx") or "g++"
    if shutil.which(compiler) is None:
        raise BackendError(
            f"there is no {compiler}, with which Theano compiles each function: install it or load it (apt-get install "
            "g++), or name another in THEANO_FLAGS (cxx=...)"
        )
    if "-lopenblas" in flags["blas.ldflags"] and _openblas(flags) is None:
        raise compile_error("libopenblas", Path())
    folder = _folder(flags, compiler)
    flags = {key: value for key, value in flags.items() if key not in ("base_compiledir", "compiledir")}
    flags["compiledir"] = str(_base(folder, flags))
    own = {"THEANO_FLAGS": joined(flags), "THEANORC": os.environ.get("THEANORC", os.devnull)}
    with during(os.environ, own), without(_GUESTS):
        try:
            theano: Any = importlib.import_module("theano")
        except (Exception, SystemExit) as error:
            raise compile_error(error, folder) from error
    gof: dict[str, Any] = {
        name: importlib.import_module(f"theano.gof.{name}") for name in ("cc", "cmodule", "compilelock")
    }
    gof["compilelock"].set_lock_status(False)
    store = ModuleStore(folder, gof["cmodule"].get_module_hash)
    gof["cc"].get_module_cache = lambda init_args=None: store
    theano.config.floatX = "float32"
    _Running.asked, _Running.flags, _Running.store = asked, flags, store


def _folder(flags: Mapping[str, str], compiler: str) -> Path:
    """Where modules are kept for what they fit: this Theano, NumPy, Python, compiler and kind of CPU."""
    cache = os.environ.get("HPCNN_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "hpcnn")
    base = flags.get("compiledir") or flags.get("base_compiledir") or os.path.join(cache, "theano")
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        cpu = sorted({line for line in stream if line.startswith(("model name", "flags", "Features"))})
    found = os.path.realpath(shutil.which(compiler) or compiler)
    kind = [importlib.metadata.version("theano"), sys.version, np.__version__, platform.machine(), found, *cpu]
    folder = Path(os.path.expanduser(base)).absolute() / hashlib.sha256("\n".join(kind).encode()).hexdigest()[:12]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise compile_error(error, folder) from None
    return folder


def _base(folder: Path, flags: Mapping[str, str]) -> Path:
    """Theano's own folder, with its own modules, made whole or not at all."""
    base, making = folder / "base", folder / "base.making"
    if base.is_dir():
        return base
    try:
        with locked(folder / "base.lock"):
            if not base.is_dir():
                shutil.rmtree(making, ignore_errors=True)
                _refuse_full(folder / "base.room")
                own = {"THEANO_FLAGS": joined({**flags, "compiledir": str(making)}), "THEANORC": os.devnull}
                run = subprocess.run(
                    [sys.executable, "-c", _BASE],
                    env={**os.environ, **own},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if run.returncode:
                    raise compile_error(run.stderr[-2000:], folder)
                making.rename(base)
    except OSError as error:
        raise compile_error(error, folder) from None
    return base


def _refuse_full(path: Path) -> None:
    """OSError where there is no room: Theano would wait for its lock for ever."""
    try:
        path.write_bytes(bytes(_ROOM))
    finally:
        path.unlink(missing_ok=True)


def _openblas(flags: Mapping[str, str]) -> Any:
    """The library that modules will be linked with, or None."""
    folders = [word[2:] for word in flags["blas.ldflags"].split() if word.startswith("-L")]
    names = [*(os.path.join(folder, "libopenblas.so") for folder in folders), "libopenblas.so.0", "libopenblas.so"]
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _openmp() -> Any:
    """The library of g++'s threads where it is loaded already: later it would read OMP_NUM_THREADS."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    return None
