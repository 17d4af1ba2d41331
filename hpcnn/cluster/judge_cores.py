"""Cores and threads of the ranks of each host: enough of them, bound as wide as their threads, and with which flags."""

from __future__ import annotations

from collections.abc import Sequence

from hpcnn.cluster.facts import Facts
from hpcnn.cluster.findings import Finding, count, ok, ranks_text
from hpcnn.cluster.judge import alike


def judge_cores(ranks: Sequence[Facts]) -> list[Finding]:
    """A finding or more a host; hosts in the order of their first rank."""
    wrong = [rank for rank, facts in enumerate(ranks) if facts.threads.error]
    if wrong:
        words = ranks[wrong[0]].threads.error
        return [Finding("error", "cores", f"{ranks_text(wrong)}: {words}", "a training would be refused for it")]
    hosts = alike([facts.place.host for facts in ranks])
    return [finding for host, here in hosts.items() for finding in _on_host(host, here, ranks)]


def _on_host(host: str, here: Sequence[int], ranks: Sequence[Facts]) -> list[Finding]:
    mine = [ranks[rank] for rank in here]
    usable = set().union(*(facts.cores for facts in mine))
    threads = sum(facts.threads.count for facts in mine)
    each = max(facts.threads.count for facts in mine)
    found = []
    if threads > len(usable):
        found.append(_crowded(host, mine, len(usable), threads, each))
    else:
        narrow = [rank for rank, facts in zip(here, mine, strict=True) if facts.threads.count > len(facts.cores)]
        if narrow:
            found.append(_narrow(host, narrow[0], ranks[narrow[0]], each))
    found += _narrowed(host, here, ranks)
    return found or [ok("cores", _as_it_is(host, mine, len(usable)))]


def _load(mine: Sequence[Facts]) -> str:
    """`2 ranks x 1 thread`, or of unlike ranks the sum."""
    counts = {facts.threads.count for facts in mine}
    if len(counts) == 1:
        return f"{count(len(mine), 'rank')} x {count(counts.pop(), 'thread')}"
    return f"{count(len(mine), 'rank')} of {sum(facts.threads.count for facts in mine)} threads"


def _crowded(host: str, mine: Sequence[Facts], usable: int, threads: int, each: int) -> Finding:
    on_host = max(facts.cores_on_host for facts in mine)
    share = usable // len(mine)
    mends = []
    if on_host > usable:
        mends.append(
            f"let them use more of its {on_host}: mpirun --bind-to none, srun --cpus-per-task={each}, sbatch "
            f"--cpus-per-task={each}"
        )
    if share:
        mends.append(f"--threads {share} (or OMP_NUM_THREADS={share})")
    elif usable:
        mends.append(f"at most {count(usable, 'rank')} on {host}")
    what = f"{_load(mine)} on {host}, which {'may use' if on_host > usable else 'has'} {count(usable, 'core')}"
    why = "threads wait for each other, and a rank that waits for a message holds a core from one that computes"
    return Finding("warning", "cores", what, why, "; or ".join(mends))


def _narrow(host: str, rank: int, facts: Facts, each: int) -> Finding:
    return Finding(
        "warning", "cores",
        f"rank {rank} is bound to {count(len(facts.cores), 'core')} of {host}, and takes "
        f"{count(facts.threads.count, 'thread')}", "its threads share those cores, while others may idle",
        f"mpirun --bind-to none (or --map-by slot:PE={each}), srun --cpus-per-task={each}; or --threads "
        f"{len(facts.cores)}",
    )  # fmt: skip


def _narrowed(host: str, here: Sequence[int], ranks: Sequence[Facts]) -> list[Finding]:
    """By MPI or NumPy, in the ranks themselves; the backend is looked at in a process of its own."""
    narrowed = [rank for rank in here if len(ranks[rank].cores_now) < len(ranks[rank].cores)]
    if not narrowed:
        return []
    first = ranks[narrowed[0]]
    binding = " ".join(first.binding)
    return [
        Finding(
            "warning",
            "cores",
            f"importing MPI and NumPy narrows {ranks_text(narrowed)} on {host} from {len(first.cores)} cores to "
            f"{len(first.cores_now)}",
            "all threads would share those",
            f"unset {binding}, and bind by the launcher" if binding else "mpirun --bind-to none",
        )
    ]


def _as_it_is(host: str, mine: Sequence[Facts], usable: int) -> str:
    widths = {len(facts.cores) for facts in mine}
    if len(mine) > 1 and all(len(facts.cores) < usable for facts in mine):
        bound = f"bound to {count(widths.pop(), 'core')} each" if len(widths) == 1 else "bound"
    else:
        bound = "not bound" if usable == max(facts.cores_on_host for facts in mine) else "bound together"
    of = f"{count(usable, 'core')} of {max(facts.cores_on_host for facts in mine)}"
    return f"{_load(mine)} on {of} of {host}, {bound} (threads from {mine[0].threads.source})"
