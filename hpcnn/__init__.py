"""hpcnn: train one convolutional network in parallel, and find out what the parallelism did."""

from __future__ import annotations

__version__ = "0.1.0"
