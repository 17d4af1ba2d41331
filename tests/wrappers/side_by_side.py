"""Run by test_side_by_side.py: opens backends one after the other in one process, then asks each of them.

Usage: side_by_side.py BACKEND... Prints, as JSON, the cores that this process may use, before and after.
"""

from __future__ import annotations

import json
import os
import sys

from hpcnn.wrappers.registry import open_backend
from tests.wrappers import backends as _  # noqa: F401 (what Keras computes with where nothing says)


def main(backends: list[str]) -> None:
    before = sorted(os.sched_getaffinity(0))
    for backend in backends:
        open_backend(backend, threads=2)
    from tests.wrappers.probes import DEEP, assert_answers, build, some_rows

    for backend in backends:
        rows = some_rows(DEEP.whole, 7)
        assert_answers(build(backend, DEEP.whole), rows)
    print(json.dumps([before, sorted(os.sched_getaffinity(0))]))


if __name__ == "__main__":
    main(sys.argv[1:])
