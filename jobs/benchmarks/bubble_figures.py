"""The table and the picture of pipeline_bubble.py's results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report import Report, place

from hpcnn.studies.plots import COLOURS, HATCHES

TITLE = "Bubbles of pipeline schedules"
EXPLANATION = """\
Every rank is a process, every message one of MPI; computing is a sleep (`--backend simulated`). *bubble*: the share of
a training step's time in which a rank does not compute, by its own clock, mean over ranks; everything else counts, also
loading, the update and the files of the epoch's end. *theory*: the papers' formula, where messages and updates take no
time. *stored*: the most micro-batches that wait for their backward at once, stage by stage (of interleaved: segments of
micro-batches), from the trace of the run, and as the papers say. An operation's cost is measured where computing takes
no time; *without waiting*: without what a stage waits for the other one, which under 1f1b it does at every operation.
"""


class BubbleReport(Report):
    """As any benchmark's, with a table of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TITLE, EXPLANATION, ())

    def table(self) -> str:
        places = dict.fromkeys(place(section, ()) for section in self.results.values())
        lines = [f"# {TITLE}", "", *places, "", EXPLANATION]
        for name, section in self.results.items():
            if schedules := section.get("schedules"):
                lines += _bubbles(name, schedules, section["settings"])
        for section in self.results.values():
            if costs := section.get("costs"):
                lines += _costs(costs)
        return "\n".join(lines)


def _bubbles(name: str, schedules: dict[str, Any], settings: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield (
        f"A stage's forward of a micro-batch takes {1000 * settings['stage_forward_seconds']:g} ms, its backward "
        f"{1000 * settings['stage_backward_seconds']:g} ms; {settings['steps_measured']} steps measured; messages of "
        f"{settings['message_bytes'] / 1024:.0f} KiB. Target: at most {settings['target_points']:g} points apart."
    )
    yield ""
    yield "| schedule | bubble | theory | points apart | step, seconds | in theory | stored | in theory |"
    yield "|---|---|---|---|---|---|---|---|"
    for schedule, one in schedules.items():
        yield (
            f"| {schedule} | {one['bubble']:.1%} | {one['theory']:.1%} | {one['points_apart']:+.1f} | "
            f"{one['step_seconds']:.3f} | {one['step_seconds_in_theory']:.3f} | {_numbers(one['stored'])} | "
            f"{_numbers(one['stored_in_theory'])} |"
        )
    yield ""


def _costs(costs: dict[str, Any]) -> Iterator[str]:
    yield "## Cost of an operation"
    yield ""
    yield "| executor | operations a step | microseconds an operation | without waiting | target |"
    yield "|---|---|---|---|---|"
    for name, one in costs.items():
        target = "" if one["target"] is None else f"below {one['target']:g}"
        yield (
            f"| {name} | {one['operations']} | {one['microseconds']:.1f} | {one['microseconds_without_wait']:.1f} | "
            f"{target} |"
        )
    yield ""


def _numbers(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


def draw(results: dict[str, Any], out: Path) -> None:
    """Bubbles of all sizes beside theory, and what each stage of the middle size stores; nothing where none ran."""
    sizes = {name: section for name, section in results.items() if "schedules" in section}
    if not sizes:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4), layout="constrained", width_ratios=(3, 2))
    _draw_bubbles(left, sizes)
    name = list(sizes)[(len(sizes) - 1) // 2]
    _draw_stored(right, name, sizes[name]["schedules"])
    figure.savefig(out, dpi=120)
    pyplot.close(figure)


def _draw_bubbles(axes: Any, sizes: dict[str, Any]) -> None:
    names = list(dict.fromkeys(schedule for section in sizes.values() for schedule in section["schedules"]))
    width = 0.8 / len(names)
    for number, schedule in enumerate(names):
        found = [(at, section["schedules"].get(schedule)) for at, section in enumerate(sizes.values())]
        at = [group + (number - (len(names) - 1) / 2) * width for group, one in found if one]
        ones = [one for _, one in found if one]
        axes.bar(
            at, [100 * one["bubble"] for one in ones], 0.9 * width, label=schedule, color=COLOURS[number],
            hatch=HATCHES[number], edgecolor="white", linewidth=0.4,
        )  # fmt: skip
        theory = [100 * one["theory"] for one in ones]
        half = width / 2
        axes.hlines(
            theory, [x - half for x in at], [x + half for x in at], colors="black", linewidth=1.5,
            label="theory" if schedule == names[-1] else None,
        )  # fmt: skip
    axes.set_xticks(range(len(sizes)), list(sizes))
    axes.set(ylabel="bubble, % of a step", title="time in which ranks do not compute, measured by their own clocks")
    axes.grid(axis="y", alpha=0.3)
    axes.set_ylim(top=125)  # above all bars, for the names
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, ncols=3, fontsize="small", loc="upper center")


def _draw_stored(axes: Any, name: str, schedules: dict[str, Any]) -> None:
    for number, (schedule, one) in enumerate(schedules.items()):
        stages = range(len(one["stored"]))
        axes.plot(stages, one["stored_in_theory"], "-", color=COLOURS[number], linewidth=1.2)
        axes.plot(stages, one["stored"], "osD^v"[number % 5], color=COLOURS[number], label=schedule)
    axes.set(xlabel="stage", ylabel="micro-batches stored at most", title=f"{name}, and in theory (lines)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
