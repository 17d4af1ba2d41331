"""A study's report as one HTML page: styles and pictures are in it, so it opens offline, can be sent on, and prints."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from hpcnn.studies.study_plots import Plot
from hpcnn.studies.study_tables import Table

STYLE = """
:root { --ink: #1a1a1a; --soft: #555; --line: #ccc; --wash: #f4f4f2; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 2rem 1.5rem 4rem; color: var(--ink); background: #fff;
  font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 1.9rem; line-height: 1.2; }
h2 { margin: 2.5rem 0 .25rem; font-size: 1.25rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
.about, .words, figcaption { color: var(--soft); font-size: .875rem; }
.words { margin: .35rem 0 .5rem; max-width: 50rem; }
.headlines { margin: 1.25rem 0; padding: .75rem 1.25rem .75rem 2.25rem; background: var(--wash);
  border-left: 4px solid var(--ink); }
.headlines li { margin: .3rem 0; }
nav { margin: 1rem 0; font-size: .875rem; }
nav a { margin-right: 1rem; white-space: nowrap; color: var(--ink); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .8125rem; line-height: 1.35; }
th, td { padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
tbody th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
td:not(.number), thead th:not(.number, :first-child) { padding-left: .6rem; }
tbody th { min-width: 9rem; }
pre { white-space: pre-wrap; font-size: .8125rem; line-height: 1.4; background: var(--wash); padding: .75rem 1rem; }
td.long { overflow-wrap: anywhere; }
figure { margin: 1rem 0 0; }
figure svg { display: block; width: 100%; height: auto; }
@media print {
  @page { margin: 15mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2, .words { break-after: avoid; break-inside: avoid; }
  figure svg { max-height: 225mm; }
  figure, tr, .headlines { break-inside: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding-right: .35rem; }
  thead { display: table-header-group; }
  .headlines { background: none; }
}
"""
_LONG = 40
"""Characters from which a cell may break anywhere: a path, a list of versions."""
_NUMBER = re.compile(r"[-−]?[\d.,]+(e[+-]?\d+)?( ?%)?( \(.*\))?|-")


def page(
    name: str, about: str, headlines: Sequence[str], plots: Sequence[Plot], tables: Sequence[Table], asked: str
) -> str:
    """The whole document. `about`: the line under its title; `asked`: the study file, shown last. What has the same
    title is one section, plots first."""
    contents: dict[str, list[str]] = {title: [] for title in _titles(plots, tables)}
    for plot in plots:
        contents[plot.title].append(_figure(plot))
    for table in tables:
        contents[table.title].append(_table(table))
    sections = [(title, "\n".join(parts)) for title, parts in contents.items()]
    if asked:
        sections.append(("What was asked", f"<pre>{html.escape(asked.strip())}</pre>"))
    links = " ".join(f'<a href="#{_anchor(title)}">{html.escape(title)}</a>' for title, _ in sections)
    body = "\n".join(
        f'<section id="{_anchor(title)}">\n<h2>{html.escape(title)}</h2>\n{content}\n</section>'
        for title, content in sections
    )
    lines = "\n".join(f"<li>{_text(line)}</li>" for line in headlines)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(name)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{html.escape(name)}</h1>
<p class="about">{_text(about)}</p>
<ul class="headlines">
{lines}
</ul>
<nav>{links}</nav>
{body}
</body>
</html>
"""


def _titles(plots: Sequence[Plot], tables: Sequence[Table]) -> list[str]:
    """Those of the tables in their order; what is a plot alone comes first."""
    tabled = [table.title for table in tables]
    return [*(plot.title for plot in plots if plot.title not in tabled), *tabled]


def _text(text: str) -> str:
    """Escaped; a unit stays with its number."""
    return html.escape(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _table(table: Table) -> str:
    numbers = [
        all(_NUMBER.fullmatch(row[place]) for row in table.rows) and any(row[place] != "-" for row in table.rows)
        for place in range(len(table.header))
    ]
    head = "".join(
        f'<th scope="col"{_class(number)}>{_text(cell)}</th>'
        for cell, number in zip(table.header, numbers, strict=True)
    )
    rows = "\n".join(f"<tr>{_row(row, numbers)}</tr>" for row in table.rows)
    words = f'<p class="words">{_text(table.words)}</p>\n' if table.words else ""
    return (
        f'{words}<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
    )


def _row(row: Sequence[str], numbers: Sequence[bool]) -> str:
    first, *rest = row
    cells = [f'<th scope="row"{_class(numbers[0])}>{_text(first)}</th>']
    for cell, number in zip(rest, numbers[1:], strict=True):
        cells.append(f"<td{_class(number, len(cell) > _LONG)}>{_text(cell)}</td>")
    return "".join(cells)


def _class(number: bool, long: bool = False) -> str:
    return ' class="number"' if number else ' class="long"' if long else ""


def _figure(plot: Plot) -> str:
    title = html.escape(plot.title, quote=True)
    svg = _inlined(plot.svg.decode("utf-8"), plot.name).replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
    return f"<figure>\n{svg}\n<figcaption>{_text(plot.words)}</figcaption>\n</figure>"


def _inlined(svg: str, name: str) -> str:
    """The picture without what a file of its own begins with, its names told apart from those of the page's others."""
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg[svg.index("<svg ") :])
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg).strip()
