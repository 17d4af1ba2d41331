"""The image in a row: channels, height and width from a number of feature columns, in channel-height-width order."""

from __future__ import annotations

import os
from math import isqrt, prod

from hpcnn.data.cells import data_error

ImageShape = tuple[int, int, int]


def image_shape(features: int) -> ImageShape | None:
    """(1, k, k) for k*k features, (3, k, k) for 3*k*k, else None. No number is both: 3 is no square."""
    for channels in (1, 3):
        side = isqrt(features // channels)
        if side and channels * side * side == features:
            return channels, side, side
    return None


def input_shape_of(path: str | os.PathLike[str], features: int, given: ImageShape | None) -> ImageShape:
    """The given input shape if the features fill it, else the square image that they make; `DataError` otherwise."""
    if given is not None and prod(given) != features:
        shape = "x".join(map(str, given))
        raise data_error(path, f"has {features} features a row, but the input shape {shape} needs {prod(given)}")
    found = given or image_shape(features)
    if found is None:
        problem = f"{features} features make no square image of 1 or 3 channels"
        raise data_error(path, f"{problem}; give --input-shape CHANNELS,HEIGHT,WIDTH")
    return found
