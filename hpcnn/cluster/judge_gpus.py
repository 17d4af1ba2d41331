"""Would each rank get a GPU of its own? Judged as a training with --device cuda decides (hpcnn.training.gpus)."""

from __future__ import annotations

from collections.abc import Sequence

from hpcnn.cluster.facts import Facts
from hpcnn.cluster.findings import Finding, count, ok, ranks_text
from hpcnn.errors import HpcnnError
from hpcnn.training.gpus import Seen, assigned


def judge_gpus(ranks: Sequence[Facts], device: str = "cpu") -> list[Finding]:
    """`device`: that of the training that is meant; on CPUs, GPUs that are missing or too few are nobody's error."""
    seen = [Seen(facts.place.host, facts.gpus) for facts in ranks]
    without = [rank for rank, one in enumerate(seen) if not one.gpus]
    level = "error" if device == "cuda" else "warning"
    if len(without) == len(ranks) and device != "cuda":
        return [ok("gpus", "no rank sees a GPU: a training computes on CPUs")]
    if without:
        on = ", ".join(dict.fromkeys(seen[rank].host for rank in without))
        return [
            Finding(
                level,
                "gpus",
                f"{ranks_text(without)} on {on} see{'s' * (len(without) == 1)} no GPU",
                "--device cuda is refused: it takes one for each rank",
                "sbatch --gpus-per-task=1; see what CUDA_VISIBLE_DEVICES hides, and nvidia-smi",
            )
        ]
    try:
        number = len(set(zip((one.host for one in seen), assigned(seen), strict=True)))
    except HpcnnError as error:
        what, _, remedy = str(error).removeprefix("--device cuda: ").partition(": ")
        why = "--device cuda is refused: ranks that take turns at a GPU, and share its memory, make nothing faster"
        return [Finding(level, "gpus", what, why, remedy)]
    reads = all(facts.mpi_reads_gpus for facts in ranks)
    added = "MPI reads their memory" if reads else "MPI does not read their memory: the host's is used for sums"
    on_rank_0 = ", ".join(seen[0].gpus)
    return [ok("gpus", f"{count(number, 'GPU')} for {count(len(ranks), 'rank')}: {on_rank_0} on rank 0; {added}")]
