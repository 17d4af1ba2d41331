"""hpcnn: train one convolutional network in parallel, in any of five frameworks, and see what that did."""

from __future__ import annotations

__version__ = "0.1.0"
