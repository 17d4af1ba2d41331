"""What a study was made of: the settings of its cells, and the machines and versions of its runs, as tables."""

from __future__ import annotations

from typing import Any

from hpcnn.studies.study_reading import Results, computes, machines_of
from hpcnn.studies.study_tables import Table

MOST = 12
"""Values of a setting that are told."""
_MACHINE = ("host", "processor", "cores", "memory_bytes", "system")


def fact_tables(study: Results) -> list[Table]:
    return [table for table in (_configuration(study), _machine(study)) if table.rows]


def _configuration(study: Results) -> Table:
    """Every setting of a cell, and of the runs' own settings those that no cell names."""
    named = dict.fromkeys(name for cell in study.cells for name in cell.settings)
    rows = [
        ["cells", str(len(study.cells))],
        ["warm-up steps", str(study.warmup)],
        ["ranks", _values(cell.ranks for cell in study.cells)],
        ["repeats", _values(cell.repeat for cell in study.cells)],
        *([name, _values(cell.settings.get(name) for cell in study.cells)] for name in named),
    ]
    unnamed = dict.fromkeys(name for one in study.measured for name in one.run.config if name not in named)
    for name in unnamed:
        if name not in ("out", "run_id", "resume", "progress"):
            rows.append([name, _values(one.run.config.get(name) for one in study.measured)])
    return Table("Configuration", ["setting", "values"], [row for row in rows if row[1] != "-"])


def _machine(study: Results) -> Table:
    rows: list[list[str]] = []
    machines = [one for run in study.measured for one in machines_of(run.run)]
    for name in _MACHINE:
        if any(name in one for one in machines):
            words = _memory if name == "memory_bytes" else _plain
            rows.append([name.removesuffix("_bytes"), _values((one.get(name) for one in machines), words)])
    for backend in dict.fromkeys(computes(one.run) for one in study.measured):
        versions = [one.run.manifest.get("versions") for one in study.measured if computes(one.run) == backend]
        found = dict.fromkeys(
            f"{name} {version}" for one in versions if isinstance(one, dict) for name, version in one.items()
        )
        rows.append([f"versions, {backend}", ", ".join(found)])
    libraries = [one.run.manifest.get("mpi") for one in study.measured]
    mpi = [str(one.get("version", "")).partition(",")[0] for one in libraries if isinstance(one, dict)]
    rows.append(["MPI", _values(mpi)])
    rows.append(["commit", _values(one.run.manifest.get("commit") for one in study.measured)])
    starts = sorted(str(one.run.manifest["start"]) for one in study.measured if one.run.manifest.get("start"))
    ends = sorted(str(one.run.manifest["end"]) for one in study.measured if one.run.manifest.get("end"))
    if starts and ends:
        rows.append(["measured", f"{starts[0]} to {ends[-1]}"])
    return Table("Machine and versions", ["what", "values"], rows if study.measured else [])


def _plain(value: Any) -> str:
    return str(value)


def _memory(value: Any) -> str:
    return f"{value / 2**30:.1f} GiB" if isinstance(value, (int, float)) else str(value)


def _values(values: Any, words: Any = _plain) -> str:
    """Different values in their order, None and empty ones as `-`."""
    told = list(dict.fromkeys("-" if value in (None, "", {}, []) else words(value) for value in values))
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    return ", ".join(told[:MOST]) + more
