"""A stretch of a file that moves without reading a byte twice: what keeps a rank's reading near its own interval.

The head (format), the scan for row starts and the rank's rows overlap almost wholly, and share one window.
"""

from __future__ import annotations

import os
import stat

from hpcnn.data.cells import data_error
from hpcnn.errors import DataError

BLOCK = 1 << 20


class FileWindow:
    """The bytes [start, stop) of a regular file; `size` in bytes, `bytes_read` counts what was read so far.

    The file is opened for each read, so that no descriptor is open when a rank fails. Raises `DataError` if the file is
    missing, empty, no regular file, unreadable, or shorter than it was.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.bytes_read = 0
        self._start = 0
        self._data = b""
        try:
            status = os.stat(self.path)
            if stat.S_ISDIR(status.st_mode):
                raise data_error(self.path, "is a directory; give a CSV file")
            if not stat.S_ISREG(status.st_mode):
                raise data_error(self.path, "is no regular file; ranks read different parts of it, so give a file")
            os.close(os.open(self.path, os.O_RDONLY))
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        self.size = status.st_size
        if self.size == 0:
            raise data_error(self.path, "is empty; give a CSV with a row of numbers for each sample")

    @classmethod
    def of(cls, source: str | os.PathLike[str] | FileWindow) -> FileWindow:
        return source if isinstance(source, FileWindow) else cls(source)

    def read(self, start: int, stop: int) -> memoryview:
        """The bytes [start, stop); only those outside the window are read, and then the window is [start, stop)."""
        end = self._start + len(self._data)
        if not (self._start <= start <= stop <= end):
            low, high = max(start, self._start), min(stop, end)
            if low < high:
                kept = memoryview(self._data)[low - self._start : high - self._start]
                self._data = b"".join((self._fetch(start, low), kept, self._fetch(high, stop)))
            else:
                self._data = self._fetch(start, stop)
            self._start = start
        return memoryview(self._data)[start - self._start : stop - self._start]

    def release(self) -> None:
        """Forget the bytes."""
        self._data = b""

    def count_lines(self, stop: int) -> int:
        """The number of line ends before byte `stop`, read anew: for error messages only."""
        return sum(self._fetch(at, min(at + BLOCK, stop)).count(b"\n") for at in range(0, stop, BLOCK))

    def _fetch(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        parts = []
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                while start < stop and (part := os.pread(descriptor, stop - start, start)):
                    parts.append(part)
                    start += len(part)
                    self.bytes_read += len(part)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._unreadable(error) from error
        if start < stop:
            raise data_error(self.path, f"ends at byte {start} where it had {self.size}; it changed while being read")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unreadable(self, error: OSError | ValueError) -> DataError:
        if isinstance(error, FileNotFoundError):
            return data_error(self.path, "no such file; check the path (on every node)")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return data_error(self.path, f"cannot be read ({reason}); check the path and its permissions")
