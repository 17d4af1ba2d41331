"""The schedule table: one row a rank, time from left to right, as the pipeline papers draw it.

    time      0     2     4     6     8     10
    stage 0   F0 F1 .  .  B0 -- .  B1 --
    stage 1   .  F0 L0 -- F1 L1 -- .  .

A cell is one unit of time: what runs (letter and micro-batch, or segment and micro-batch where a rank holds several
segments), `--` while it goes on, a dot while the rank waits. Messages take no time and have no cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hpcnn.parallel.grid import Grid
from hpcnn.parallel.program import COMPUTING, Operation, Program
from hpcnn.parallel.timeline import Timeline, play

WIDTH = 120
MOST_BLOCKS = 4
"""Lines of a row, before its middle is left out."""

Mark = tuple[int, int]
"""A rank, and a place in its program."""


def schedule_table(programs: Sequence[Program], grid: Grid, *, mark: Mark | None = None, width: int = WIDTH) -> str:
    """The programs as text lines of at most `width` characters, as they run where each operation takes its unit time.

    Replicas that do the same are shown once. A rank that waits for ever says in what; under the operation of `mark`
    stands a caret with its name.
    """
    return timeline_table(play(programs, grid), grid, mark=mark, width=width)


def timeline_table(timeline: Timeline, grid: Grid, *, mark: Mark | None = None, width: int = WIDTH) -> str:
    """`schedule_table` of programs that were played already, at costs of whole units."""
    shown = _shown(timeline, grid, mark)
    name = _short if all(_one_segment(timeline.programs[rank]) for rank in shown) else str
    rows = {rank: _cells(timeline, rank, name) for rank in shown}
    labels = {rank: _label(grid, rank) for rank in shown}
    left = max(map(len, ("time", *labels.values()))) + 3
    cell = 1 + max((len(text) for row in rows.values() for text in row), default=1)
    columns = round(timeline.makespan)
    fit = max(1, (width - left) // cell)
    blocks = [(start, min(start + fit, columns)) for start in range(0, columns, fit)] or [(0, 0)]
    lines: list[str] = []
    for number, (start, stop) in enumerate(blocks):
        last = stop == columns
        carets = [] if mark is None else _carets(timeline, mark, start, stop, last, left, cell)
        if MOST_BLOCKS - 1 <= number < len(blocks) - 1 and not carets:
            lines += [f"... {columns - stop:,} more units of time"] * (number == MOST_BLOCKS - 1)
            continue
        lines.append(("time".ljust(left) + _scale(start, stop, cell)).rstrip())
        for rank in shown:
            cells = "".join(text.ljust(cell) for text in rows[rank][start:stop])
            lines.append((labels[rank].ljust(left) + cells + (_waiting(timeline, rank) if last else "")).rstrip())
            if mark is not None and mark[0] == rank:
                lines += carets
    if len(shown) < len(timeline.programs):
        lines.append(f"the other {'replica does' if grid.dp == 2 else f'{grid.dp - 1} replicas do'} the same")
    return "\n".join(lines)


def _shown(timeline: Timeline, grid: Grid, mark: Mark | None) -> list[int]:
    programs, replica = timeline.programs, grid.pp * grid.tp
    same = all(programs[rank] == programs[rank % replica] for rank in range(len(programs)))
    return list(range(replica if same and (mark is None or mark[0] < replica) else len(programs)))


def _one_segment(program: Program) -> bool:
    return len({operation.segment for operation in program if operation.kind in COMPUTING}) < 2


def _short(operation: Operation) -> str:
    return f"{operation.kind.value}{operation.micro_batch}"


def _cells(timeline: Timeline, rank: int, name: Callable[[Operation], str]) -> list[str]:
    cells = ["."] * round(timeline.makespan)
    for operation, (begin, end) in zip(timeline.programs[rank], timeline.spans[rank], strict=False):
        if operation.kind in COMPUTING:
            text = name(operation)
            cells[round(begin) : round(end)] = [text, *["-" * len(text)] * (round(end - begin) - 1)]
    return cells


def _label(grid: Grid, rank: int) -> str:
    replica, stage, part = grid.place(rank)
    words = [f"rank {rank}"]
    words += (
        [f"replica {replica}"] * (grid.dp > 1) + [f"stage {stage}"] * (grid.pp > 1) + [f"part {part}"] * (grid.tp > 1)
    )
    return " ".join(words)


def _scale(start: int, stop: int, cell: int) -> str:
    """Times above the cells, as many as leave a blank between them."""
    step = next(step for step in _steps() if step * cell > len(str(stop)))
    first = -(-start // step) * step
    blanks = " " * ((first - start) * cell)
    return blanks + "".join(str(time).ljust(step * cell) for time in range(first, stop, step)).rstrip()


def _steps() -> Iterator[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10


def _waiting(timeline: Timeline, rank: int) -> str:
    place = timeline.stuck.get(rank)
    return "" if place is None else f"waits in {timeline.programs[rank][place]}"


def _carets(timeline: Timeline, mark: Mark, start: int, stop: int, last: bool, left: int, cell: int) -> list[str]:
    """The line that points at the mark, where its time is from start to stop."""
    rank, place = mark
    program, spans = timeline.programs[rank], timeline.spans[rank]
    time = round(spans[place][0] if place < len(spans) else timeline.ends[rank])
    if not (start <= time < stop or (last and time >= stop)):
        return []
    text = str(program[place]) if place < len(program) else "its end"
    return [" " * (left + (time - start) * cell) + f"^ {text}"]
