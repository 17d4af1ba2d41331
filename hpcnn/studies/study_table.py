"""The tidy table of a study: one row a run, one column a setting or a figure. What R, a spreadsheet or pandas reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hpcnn.records.files import write_csv
from hpcnn.records.phases import PHASES
from hpcnn.studies.cells import Cell
from hpcnn.studies.reading import epochs_of
from hpcnn.studies.study_reading import Measured, Results
from hpcnn.studies.study_timing import APART

TIMED = [phase for phase in PHASES if phase not in APART]


def write_tidy(results: Results, path: Path) -> None:
    """study.csv: a row a run that counts, in the order of the cells. Times and rates leave out warm-up steps,
    evaluation and checkpoints; seconds and shares of phases are means over ranks. An empty cell: not there, or not
    known."""
    rows = [_settings(one.cell) | _figures(one) for one in results.measured]
    names = list(dict.fromkeys(name for row in rows for name in row))
    write_csv(path, names, ([row.get(name) for name in names] for row in rows))


def _settings(cell: Cell) -> dict[str, Any]:
    settings = {
        name: json.dumps(value, sort_keys=True) if isinstance(value, (dict, list)) else value
        for name, value in cell.settings.items()
    }
    return {"key": cell.key, "scaling": cell.scaling, "repeat": cell.repeat, "ranks": cell.ranks, **settings}


def _figures(one: Measured) -> dict[str, Any]:
    manifest, time = one.run.manifest, one.spent
    wall = manifest.get("wall_seconds")
    return {
        "run": one.cell.run,
        "timed_steps": one.steps,
        "timed_rows": one.rows,
        "timed_seconds": time.seconds,
        "samples_per_second": one.rate,
        **{f"{phase}_seconds": time.phases.get(phase, 0.0) for phase in TIMED},
        **{f"{phase}_share": time.share(phase) for phase in TIMED},
        "hidden_seconds": time.hidden,
        "starved_by_loading": time.starved,
        "late_ranks": " ".join(map(str, one.late)) or None,
        "late_why": one.why or None,
        **finals(one),
        "wall_seconds": max(wall) if isinstance(wall, list) and wall else None,
        "hosts": " ".join(dict.fromkeys(one.run.hosts[rank] for rank in sorted(one.run.hosts))),
        "start": manifest.get("start"),
        "commit": manifest.get("commit"),
    }


def finals(one: Measured) -> dict[str, Any]:
    """What a run ended at: means over its last epoch, its last validation, and the test file."""
    epochs, tested = epochs_of(one.run), one.run.tested
    last = epochs[-1]
    found = {
        "epochs_done": len(epochs), "final_loss": last.loss, "final_accuracy": last.accuracy,
        "validation_loss": last.validation_loss, "validation_accuracy": last.validation_accuracy,
        "test_loss": tested.get("loss"), "test_accuracy": tested.get("accuracy"),
    }  # fmt: skip
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in found.items()}
