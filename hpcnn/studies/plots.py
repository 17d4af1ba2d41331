"""A picture of runs: the loss of each step, and where each rank's time went. Readable in grey and by the colour-blind.

python -m hpcnn.studies.plots RUN... --out FILE.png|FILE.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.errors import HpcnnError, ResultsError
from hpcnn.records.phases import PHASES
from hpcnn.studies.reading import Run, read_run

# Okabe and Ito's palette (2008); hatches and lines tell apart what is alike in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#882255", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#999999", "#000000")
HATCHES = ("---", "///", "", "++", "...", "", "xxx", "", "\\\\\\", "")
LONGEST_NAME = 28
LINES = ("-", "--", ":", "-.")


def plot_runs(runs: Sequence[Run], out: Path) -> None:
    """Write one figure: the curves of all runs, and beside them the phases of the last run's ranks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (curves, bars) = pyplot.subplots(1, 2, figsize=(12, 3.8), layout="constrained")
    try:
        for place, run in enumerate(runs):
            _draw_curve(curves, run, place)
        curves.set(xlabel="step", ylabel="loss", yscale="log", title="training loss of each step")
        curves.grid(alpha=0.3)
        curves.legend(frameon=False)
        _draw_phases(bars, runs[-1])
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{out}: cannot be written: {error}") from None
    finally:
        pyplot.close(figure)


def _draw_curve(axes: Any, run: Run, place: int) -> None:
    colour, line = COLOURS[3 * place % len(COLOURS)], LINES[place % len(LINES)]
    step, validation = run.losses["step"], run.losses["validation_loss"]
    axes.plot(step, run.losses["train_loss"], line, color=colour, linewidth=1.2, label=_short(run))
    known = np.isfinite(validation)
    if known.any():
        axes.plot(step[known], validation[known], "o", color=colour, label=f"{_short(run)}, validation")


def _short(run: Run) -> str:
    """A name that fits a title; the end of a long one tells runs apart."""
    return run.name if len(run.name) <= LONGEST_NAME else "…" + run.name[-LONGEST_NAME:]


def _draw_phases(axes: Any, run: Run) -> None:
    ranks = sorted({rank for rank, _ in run.seconds})
    names = [f"rank {rank}" for rank in ranks]
    left = np.zeros(len(ranks))
    for place, phase in enumerate(phase for phase in PHASES if phase != "start"):
        seconds = np.array([run.seconds.get((rank, phase), 0.0) for rank in ranks])
        if seconds.any():
            axes.barh(
                names, seconds, left=left, label=phase, color=COLOURS[place], hatch=HATCHES[place], edgecolor="white",
                linewidth=0.4,
            )  # fmt: skip
        left = left + seconds
    axes.invert_yaxis()
    axes.set(xlabel="seconds, start-up apart", title=f"time of each rank, {_short(run)}")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hpcnn.studies.plots", description="Draw losses and phases of runs."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="a .png or .svg file")
    options = parser.parse_args()
    try:
        plot_runs([read_run(path) for path in options.runs], options.out)
    except HpcnnError as error:
        print(f"hpcnn: {error}", file=sys.stderr)
        return error.exit_status
    print(f"plot: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
