"""timeline.png: a trace for those who just look. Above, the whole run; below, one typical step, message by message.

python -m hpcnn.records.trace_picture RUN [--step N] [--out FILE.png|FILE.svg]
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hpcnn.errors import HpcnnError, ResultsError
from hpcnn.records.files import write_bytes
from hpcnn.records.phases import PHASES

NAME = "timeline.png"
SUFFIXES = (".png", ".svg")
# Okabe and Ito's palette (2008) for the eyes of everyone; what is not work is pale.
COLOURS = {
    "start": "#DDDDDD", "load": "#0072B2", "forward": "#E69F00", "backward": "#009E73", "gradient": "#882255",
    "communicate": "#D55E00", "wait": "#E8EEF4", "update": "#CC79A7", "evaluate": "#F0E442", "checkpoint": "#999999",
    "other": "#C8C8C8",
}  # fmt: skip
DARK = ("load", "gradient")
"""Texts on these are white."""
MESSAGES = ("#000000", "#5B3A8E")
"""Of arrows to later ranks (activations) and to earlier ones (gradients)."""
COLUMNS = 1500
"""Parts of time in the picture of a whole run: each shows the phase that took most of it."""
MOST_RANKS = 32
MOST_ARROWS = 600
LETTER = 0.0042
"""Of the picture's width: what a letter of an operation's text needs."""
HALF = 0.36
"""Of a row's height: how far a bar reaches up and down."""
EDGE: dict[str, Any] = {"edgecolor": "#444444", "linewidth": 0.3}


class Slice(NamedTuple):
    """What a rank did, microseconds; `name` is the operation's text, or the phase again."""

    phase: str
    name: str
    since: float
    until: float


class Arrow(NamedTuple):
    """A message, microseconds."""

    sender: int
    sent: float
    receiver: int
    accepted: float


@dataclass
class Timeline:
    """A trace, read: slices by rank, and when each step's operations began and ended on any."""

    slices: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)

    def typical_step(self) -> int | None:
        """The step of median length; the first one compiles and connects, and counts only where it is alone."""
        some = sorted(self.steps)[1:] or self.steps
        lengths = sorted((self.steps[step][1] - self.steps[step][0], step) for step in some)
        return lengths[(len(lengths) - 1) // 2][1] if lengths else None


def read_timeline(document: Mapping[str, Any]) -> Timeline:
    """From the document of trace.json. ResultsError where it is of another make."""
    found = Timeline()
    try:
        _read_events(document["traceEvents"], found)
    except KeyError as error:
        raise ResultsError(f"an event of the trace has no {error}; was it made by another program?") from None
    return found


def _read_events(events: Iterable[Mapping[str, Any]], found: Timeline) -> None:
    starts: dict[int, tuple[int, float]] = {}
    for event in events:
        rank, kind = event["pid"], event["ph"]
        if kind == "X" and event["cat"] in PHASES:
            one = Slice(event["cat"], event["name"], event["ts"], event["ts"] + event["dur"])
            found.slices[rank].append(one)
            if "args" in event:
                step = event["args"]["step"]
                since, until = found.steps.get(step, (one.since, one.until))
                found.steps[step] = min(since, one.since), max(until, one.until)
        elif kind == "s":
            starts[event["id"]] = rank, event["ts"]
        elif kind == "f":
            found.arrows.append(Arrow(*starts[event["id"]], rank, event["ts"]))


def draw_timeline(document: Mapping[str, Any], out: Path, step: int | None = None) -> None:
    """Write the picture of a trace; `step`: which one below, by default a typical one.

    Raises ResultsError where there is no such step or the file cannot be written, ImportError without matplotlib.
    """
    if out.suffix not in SUFFIXES:
        raise ResultsError(f"{out}: cannot be drawn: give a name that ends in {' or '.join(SUFFIXES)}")
    from matplotlib.figure import Figure

    timeline = read_timeline(document)
    if step is not None and step not in timeline.steps:
        known = f"{min(timeline.steps)} to {max(timeline.steps)}" if timeline.steps else "none"
        raise ResultsError(f"step {step} is not in the trace, which has {known}: give another --step")
    step = timeline.typical_step() if step is None else step
    ranks = sorted(timeline.slices)[:MOST_RANKS]
    heights = [0.9 + 0.17 * len(ranks), 0.9 + 0.42 * len(ranks)][: 1 if step is None else 2]
    figure = Figure(figsize=(14, sum(heights) + 0.4), layout="constrained")
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_run(axes[0], timeline, ranks)
    if step is not None:
        _draw_step(axes[1], timeline, ranks, step)
    _draw_legend(figure, timeline, ranks)
    content = io.BytesIO()
    figure.savefig(content, format=out.suffix[1:], dpi=120)
    write_bytes(out, content.getvalue())


def _draw_run(axes: Any, timeline: Timeline, ranks: Sequence[int]) -> None:
    """Each rank a row of colours, the phase that took most of each part of time."""
    from matplotlib.colors import ListedColormap

    end = max((one.until for rank in ranks for one in timeline.slices[rank]), default=0.0) or 1.0
    palette = ListedColormap(["#FFFFFF", *(COLOURS[phase] for phase in PHASES)])
    axes.imshow(
        [dominant_phases(timeline.slices[rank], end) for rank in ranks], cmap=palette, vmin=-0.5,
        vmax=len(PHASES) + 0.5, aspect="auto", interpolation="nearest", extent=(0, end / 1e6, len(ranks) - 0.5, -0.5),
    )  # fmt: skip
    for row in range(1, len(ranks)):
        axes.axhline(row - 0.5, color="white", linewidth=1.5)
    _label_ranks(axes, ranks)
    of_all = "" if len(ranks) == len(timeline.slices) else f" (the first {len(ranks)} of {len(timeline.slices)} ranks)"
    axes.set(xlabel="seconds", title=f"the whole run{of_all}")


def dominant_phases(slices: Sequence[Slice], end: float, columns: int = COLUMNS) -> list[int]:
    """For each of `columns` parts of 0 to `end`: 1 + the place in PHASES of the phase that took most of it, or 0."""
    import numpy as np

    seconds = np.zeros((1 + len(PHASES), columns))
    for one in slices:
        row, first, last = 1 + PHASES.index(one.phase), one.since * columns / end, one.until * columns / end
        left, right = min(int(first), columns - 1), min(int(last), columns - 1)
        seconds[row, left] += min(last, left + 1) - first
        if right > left:
            seconds[row, left + 1 : right] += 1
            seconds[row, right] += last - right
    return [int(place) for place in seconds.argmax(axis=0)]


def _draw_step(axes: Any, timeline: Timeline, ranks: Sequence[int], step: int) -> None:
    """Operations of one step as bars with their texts, from the first one's begin; messages as arrows."""
    since, until = timeline.steps[step]
    unit, name = (1e3, "milliseconds") if until - since < 1e7 else (1e6, "seconds")
    rows = {rank: row for row, rank in enumerate(ranks)}
    for rank, row in rows.items():
        shown = [one for one in timeline.slices[rank] if one.until > since and one.since < until]
        places = [((one.since - since) / unit, (one.until - one.since) / unit) for one in shown]
        axes.broken_barh(
            places, (row - HALF, 2 * HALF), facecolors=[COLOURS[one.phase] for one in shown], clip_on=True, **EDGE
        )
        for one in shown:
            left, right = max(one.since, since), min(one.until, until)
            needed = LETTER * (0.6 + len(one.name)) * (until - since)
            if one.name != one.phase and one.phase != "wait" and right - left > needed:
                place, colour = ((left + right) / 2 - since) / unit, "white" if one.phase in DARK else "black"
                axes.text(place, row, one.name, ha="center", va="center", fontsize=7, color=colour)
    arrows = [arrow for arrow in timeline.arrows if {arrow.sender, arrow.receiver} <= rows.keys()]
    arrows = [arrow for arrow in arrows if since <= arrow.sent <= until]
    for arrow in arrows[:MOST_ARROWS]:
        back = arrow.receiver < arrow.sender
        side = -HALF if back else HALF
        axes.annotate(
            "", ((arrow.accepted - since) / unit, rows[arrow.receiver] - side),
            ((arrow.sent - since) / unit, rows[arrow.sender] + side),
            arrowprops={"arrowstyle": "->", "color": MESSAGES[back], "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    axes.set(xlim=(0, (until - since) / unit), ylim=(len(ranks) - 0.4, -0.6), xlabel=name)
    _label_ranks(axes, ranks)
    axes.set_title(
        f"step {step}" + (f" (the first {MOST_ARROWS} of {len(arrows)} messages)" if len(arrows) > MOST_ARROWS else "")
    )


def _label_ranks(axes: Any, ranks: Sequence[int]) -> None:
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.spines[["top", "right"]].set_visible(False)


def _draw_legend(figure: Any, timeline: Timeline, ranks: Sequence[int]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    present = {one.phase for rank in ranks for one in timeline.slices[rank]}
    handles: list[Any] = [Patch(facecolor=COLOURS[phase], label=phase, **EDGE) for phase in PHASES if phase in present]
    if timeline.arrows:
        labels = ("message to a later rank", "to an earlier one")
        handles += [Line2D([], [], color=colour, label=label) for colour, label in zip(MESSAGES, labels, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hpcnn.records.trace_picture", description="Draw a run's trace.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run with --trace")
    parser.add_argument("--step", type=int, metavar="N", help="which step is shown in full (default: a typical one)")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"a .png or .svg file (default: RUN/{NAME})")
    options = parser.parse_args()
    out = options.out or options.run / NAME
    try:
        draw_timeline(_read(options.run / "trace.json"), out, options.step)
    except HpcnnError as error:
        print(f"hpcnn: {error}", file=sys.stderr)
        return error.exit_status
    except ImportError:
        print("hpcnn: matplotlib is not installed: pip install matplotlib", file=sys.stderr)
        return 1
    print(f"timeline: {out}")
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(f"{path}: is not there; train with --trace") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict) or "traceEvents" not in document:
        raise ResultsError(f"{path}: is no trace: it has no traceEvents; train with --trace")
    return document


if __name__ == "__main__":
    sys.exit(main())
