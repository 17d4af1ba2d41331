"""A rank that is made five times slower is named in the summary, and changes no bit of what is learnt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mpi.digits import BATCH, write_digits
from tests.mpi.training_driver import five_steps
from tests.support.pool import on_ranks, results
from tests.training.worlds import SHARED

pytestmark = pytest.mark.needs("torch")
ROWS = 4 * BATCH + 2


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), ROWS)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_slow_rank_leaves_the_same_bits(csv: Path, ranks: int) -> None:
    usual, slow = (
        results(on_ranks(ranks, five_steps, str(csv), validation_fraction=0.0, slow=slow))[0] for slow in (None, "1:5")
    )
    assert slow.losses == usual.losses
    assert slow.gradient.tobytes() == usual.gradient.tobytes()
    assert slow.weights.tobytes() == usual.weights.tobytes()
    assert slow.replicas_equal


def test_a_slow_rank_is_named_with_its_computing(csv: Path, tmp_path: Path) -> None:
    flags = ("--train", csv, "--global-batch", ROWS // 3, "--epochs", 7, "--out", tmp_path, "--slow", "1:5")
    said = SHARED.of(3).train(*flags).stdout
    assert "rank 1 is made to compute 5 times as long on purpose" in said
    (line,) = re.findall(r"^late: .*$", said, re.MULTILINE)
    assert re.match(r"late: rank 1 \(.*\), behind the others' median in \d+% of 21 steps, typically by ", line)
    assert re.search(r": its forward and backward take \d+\.\d times theirs$", line)
