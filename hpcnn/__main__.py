"""`python -m hpcnn`: the same as the command `hpcnn`."""

from __future__ import annotations

import sys

from hpcnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
