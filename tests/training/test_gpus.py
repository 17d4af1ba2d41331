"""Which GPU a rank takes, on given lists; and that --device cuda is refused, said once, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import BackendError, LaunchError
from hpcnn.training.gpus import Seen, assigned, chosen_of
from tests.mpi.digits import write_digits
from tests.support.mpi import run_ranks

HERE = ("GPU-0a", "GPU-0b", "GPU-1c", "GPU-2d")


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, HERE),
        ("", ()),
        ("2", ("GPU-1c",)),
        ("3, 0", ("GPU-2d", "GPU-0a")),
        ("0,7,1", ("GPU-0a",)),
        ("-1,0", ()),
        ("GPU-1", ("GPU-1c",)),
        ("GPU-0", ()),  # two begin so
        ("GPU-2d,GPU-0a", ("GPU-2d", "GPU-0a")),
        ("MIG-5/1/0", ("MIG-5/1/0",)),
        ("NoDevFiles", ()),
    ],
)
def test_a_process_sees_what_cuda_would_let_it(visible: str | None, chosen: Sequence[str]) -> None:
    assert chosen_of(HERE, visible) == tuple(chosen)


HOSTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), min_size=1, max_size=10)


@given(HOSTS)
def test_ranks_take_those_of_a_host_in_turn_and_their_own_as_they_are(ranks: list[tuple[str, int]]) -> None:
    """Shared: all see the host's eight; own: each sees one, as Slurm gives them."""
    places = [sum(host == other for other, _ in ranks[:place]) for place, (host, _) in enumerate(ranks)]
    shared = [Seen(host, tuple(f"GPU-{host}{number}" for number in range(10))) for host, _ in ranks]
    assert assigned(shared) == [f"GPU-{host}{place}" for (host, _), place in zip(ranks, places, strict=True)]
    own = [Seen(host, (f"GPU-{host}{place}",)) for (host, _), place in zip(ranks, places, strict=True)]
    assert assigned(own) == [one.gpus[0] for one in own]


@given(st.lists(st.lists(st.sampled_from(HERE), min_size=1, unique=True), min_size=1, max_size=6))
def test_no_gpu_is_given_twice_and_each_to_a_rank_that_sees_it(visible: list[list[str]]) -> None:
    try:
        found = assigned([Seen("host", tuple(gpus)) for gpus in visible])
    except LaunchError:
        return
    assert len(set(found)) == len(found) == len(visible)
    assert all(gpu in gpus for gpu, gpus in zip(found, visible, strict=True))


def test_too_few_are_refused_with_the_way_to_start() -> None:
    seen = [Seen("n1", HERE[:2]), Seen("n2", HERE[:1]), Seen("n1", HERE[:2]), Seen("n1", HERE[:2])]
    with pytest.raises(LaunchError, match=r"3 ranks on n1 see 2 GPUs between them: start one rank a GPU .*-np 2"):
        assigned(seen)


def test_a_rank_without_one_is_named() -> None:
    with pytest.raises(BackendError, match="rank 1 on n2 sees no GPU"):
        assigned([Seen("n1", HERE), Seen("n2", ())])


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver, and maybe a GPU")
@pytest.mark.parametrize("ranks", [1, 2])
def test_without_a_gpu_the_run_is_refused_in_one_line(tmp_path: Path, ranks: int) -> None:
    csv = write_digits(tmp_path)
    run = run_ranks(
        ranks, ["-m", "hpcnn", "train", "--train", str(csv), "--device", "cuda", "--out", str(tmp_path / "results")]
    )
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert len(said) == 1, run.stderr
    assert "--device cuda: " in said[0]
    assert "has no GPU to compute on (nvidia-smi: No such file or directory): leave --device out" in said[0]
    assert run.returncode == 1
    assert not (tmp_path / "results").exists()
