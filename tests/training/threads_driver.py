"""Run by test_backend_threads.py: one `hpcnn train`, and what its process was like.

Usage: threads_driver.py FRAMEWORK hpcnn's own arguments. Prints, as JSON after all else: OMP_NUM_THREADS when FRAMEWORK
was imported, threads of this process that the kernel knows at the end, and the cores it may use before and after.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from hpcnn import cli

found: dict[str, Any] = {}


class Witness:
    """Sees every import that is tried, and finds nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == sys.argv[1]:
            # It is looked for before; the last time is when it is imported.
            found["at_import"] = os.environ.get("OMP_NUM_THREADS")


def main(arguments: list[str]) -> int:
    sys.meta_path.insert(0, Witness())  # type: ignore[arg-type]
    found["cores_before"] = sorted(os.sched_getaffinity(0))
    status = cli.main(arguments)
    found["cores_after"] = sorted(os.sched_getaffinity(0))
    found["os_threads"] = len(os.listdir("/proc/self/task"))
    print(json.dumps(found))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
