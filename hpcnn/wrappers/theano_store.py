"""The modules that Theano has had compiled, each under a hash of its source and flags, for all processes of a machine.

Theano keeps modules in a folder with a lock, for which processes wait 5 to 10 seconds at a time, and beside each one a
pickle. This takes its place: a module that is there is loaded, by any number of processes at once, without a lock; one
that is not is compiled by whoever comes first, with a lock of its own, for which the others sleep, then load it. It
comes by one rename. So ranks that start together compile each module once between them, and of a process that was
killed nothing stays but a lock that nobody holds and a folder that the next one to compile that module removes.

Until the first gradient of a network of 6 layers, on 2 cores: 1 process 32 s, 2 processes 31 s (with a folder each:
47), 4 processes 49 s (135); later 3, 4 and 12 s.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.machinery
import importlib.util
import io
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcnn.errors import BackendError

FIRST_WORD, NEXT_WORD = 5.0, 15.0
"""Seconds of compilation until a person hears of it, and between two lines."""


class Stopped(BaseException):
    """A module could not be compiled, see `ModuleStore.error`. Theano goes on after an Exception, with many words."""


class ModuleStore:
    """What Theano knows as its module cache, as far as it uses it. `folder` exists."""

    def __init__(self, folder: Path, hash_of: Callable[[str, Any], str]) -> None:
        """`hash_of`: Theano's, of a module's source and its linker's key."""
        self.folder, self._hash_of = folder, hash_of
        self.on_compile: Callable[[str], None] | None = None
        self.error: BackendError | None = None
        self._loaded: dict[str, Any] = {}
        self._count, self._seconds, self._next_word = 0, 0.0, FIRST_WORD

    def module_from_key(self, key: Any, lnk: Any = None, keep_lock: bool = False) -> Any:
        """The module of a linker's graph, loaded; compiled where nobody has yet. Stopped where that fails."""
        # without the key's versions of operations: Python's own hash of a text, another each start, is in some
        name: str = self._hash_of(lnk.get_src_code(), ((), *key[1:]))
        if name not in self._loaded:
            try:
                self._loaded[name] = self._module(self.folder / f"{name}.so", lnk)
            except (Exception, SystemExit) as error:
                self.error = compile_error(error, self.folder)
                raise Stopped from error
        return self._loaded[name]

    def _module(self, path: Path, lnk: Any) -> Any:
        started = time.monotonic()
        if not path.exists():
            with locked(path.with_suffix(".lock")) as alone:
                if alone:
                    for left in self.folder.glob(f"making_{path.stem}_*"):
                        shutil.rmtree(left, ignore_errors=True)
                if not path.exists():
                    self._compile(path, lnk)
                path.with_suffix(".lock").unlink(missing_ok=True)
            self._tell(time.monotonic() - started)
        return _load(path, lnk.get_dynamic_module().code_hash)

    def _compile(self, path: Path, lnk: Any) -> None:
        making = Path(tempfile.mkdtemp(prefix=f"making_{path.stem}_", dir=self.folder))
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                lnk.compile_cmodule(str(making))
            os.replace(making / f"{lnk.get_dynamic_module().code_hash}.so", path)
        finally:
            for report in re.findall(r"temporary file: (\S+)", said.getvalue()):
                Path(report).unlink(missing_ok=True)
            shutil.rmtree(making, ignore_errors=True)

    def _tell(self, seconds: float) -> None:
        self._count += 1
        self._seconds += seconds
        if self.on_compile is not None and self._seconds >= self._next_word:
            self._next_word = self._seconds + NEXT_WORD
            so_far = f"{self._count} modules in {self._seconds:.0f} s"
            self.on_compile(f"Theano compiles its functions: {so_far}; later starts find them in {self.folder}")


def _load(path: Path, name: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Alone among the processes that lock `path`; yields whether its file system has locks at all."""
    with open(path, "wb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            yield False
        else:
            yield True


_REASONS = (
    ("cannot find -lopenblas", "g++ finds no libopenblas: install it or load it (apt-get install libopenblas-dev)"),
    ("libopenblas", "there is no libopenblas: install it or load it (apt-get install libopenblas-dev)"),
    ("Python.h", "there is no Python.h: install Python's headers (apt-get install python3-dev)"),
    ("No space left", "{folder} is full: make room, or set HPCNN_CACHE to a folder on another disk"),
    ("Disk quota", "your quota for {folder} is used up: make room, or set HPCNN_CACHE to a folder on another disk"),
    ("Read-only file system", "{folder} is read-only: set HPCNN_CACHE to a folder that can be written to"),
    ("Permission denied", "{folder} may not be written to: set HPCNN_CACHE to a folder of your own"),
    ("listing permissions", "{folder} may not be written to: set HPCNN_CACHE to a folder of your own"),
    ("[Errno 20]", "{folder} is not in a folder: set HPCNN_CACHE to a folder that can be written to"),
    ("[Errno 2]", "{folder} cannot be made: set HPCNN_CACHE to a folder that can be written to"),
    ("failed to map segment", "{folder} may not hold programs (noexec): set HPCNN_CACHE to another folder"),
)


def compile_error(error: BaseException | str, folder: Path) -> BackendError:
    """What went wrong, in a line, and what to do."""
    words = " ".join(str(error).split())
    for sign, reason in _REASONS:
        if sign in words:
            return BackendError(f"Theano cannot compile: {reason.format(folder=folder)}")
    return BackendError(f"Theano cannot compile in {folder}: {words[:300]}")
