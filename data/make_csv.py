"""Make train.csv and test.csv from mnist.npz: `python data/make_csv.py MNIST.NPZ [FOLDER]` (default: this folder).

The first 6,000 training and the first 1,000 test digits, 784 pixels a row in row-major order, then the label.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

TRAINING_ROWS = 6000
TEST_ROWS = 1000


def write_csv(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Write uint8 images (n, height, width) and their labels (n,) with a header, LF line ends."""
    pixels = images.reshape(len(images), -1)
    names = ",".join([*(f"pixel{i}" for i in range(pixels.shape[1])), "label"])
    table = np.column_stack([pixels, labels]).astype(np.int64)
    rows = (",".join(map(str, row)) for row in table.tolist())
    path.write_text("\n".join([names, *rows]) + "\n", encoding="ascii", newline="\n")


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print("usage: python data/make_csv.py MNIST.NPZ [FOLDER]", file=sys.stderr)
        return 2
    folder = Path(arguments[1]) if len(arguments) == 2 else Path(__file__).resolve().parent
    with np.load(arguments[0], allow_pickle=False) as digits:
        write_csv(folder / "train.csv", digits["x_train"][:TRAINING_ROWS], digits["y_train"][:TRAINING_ROWS])
        write_csv(folder / "test.csv", digits["x_test"][:TEST_ROWS], digits["y_test"][:TEST_ROWS])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
