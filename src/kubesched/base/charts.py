"""Reports as one self-contained HTML page: styles, SVG charts, tables.

The page follows the reader's light or dark setting, and each chart has a table with the same data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files

WIDTH = 980
COURSE_HEIGHT = 240
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
"""Margins around a line chart, for its axes."""
COLOURS = ("var(--accent)", "var(--warn)", "var(--good)", "var(--other)")

_STYLE = """\
body { max-width: 70rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 20px; margin-bottom: .3rem; } h2 { font-size: 15px; margin: 2.4rem 0 .4rem; }
p.note, dl { color: var(--dim); font-size: 13px; margin: .3rem 0; } div.wide { overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; margin-top: .8rem; }
dd { margin: 0; }
th, td { padding: .25rem 0 .25rem .9rem; text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; font-weight: 600; color: var(--dim); \
font-size: 12px; }
tbody tr:hover td { background: var(--raised); }
th:first-child, td:first-child, th.text, td.text { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
svg { width: 100%; min-width: 42rem; height: auto; } \
svg text { fill: var(--text); font-size: 13px; }
svg .dim { fill: var(--dim); font-size: 12px; } svg line { stroke: var(--line); }
svg .range { stroke: var(--text); stroke-width: 1.2; }
.key { margin: .2rem 0 .4rem; } .key span { margin-right: 1.4em; }
.key i { display: inline-block; width: .9em; height: .9em; margin-right: .45em; \
vertical-align: -1px; }
"""


@cache
def style() -> str:
    """CSS shared by all pages, plus the additions for reports."""
    return files("kubesched").joinpath("theme.css").read_text(encoding="utf-8") + _STYLE


def document(title: str, parts: Sequence[str]) -> str:
    """Returns the complete HTML page."""
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{style()}</style></head><body>",
    ]
    return "\n".join([*head, *parts, "</body></html>", ""])


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Assigns a colour to each name, in order."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}


def key(colours: Mapping[str, str]) -> str:
    """Colour legend; empty for a single series."""
    if len(colours) < 2:
        return ""
    items = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="key">{items}</p>'


class Axes:
    """A chart over two axes that start at zero."""

    def __init__(
        self, x_most: float, y_most: float, *, x_title: str, y_title: str, y_form: str = ",g"
    ) -> None:
        self._x_ticks, self._y_ticks = ticks(x_most, 8), ticks(y_most, 4)
        self._floor = COURSE_HEIGHT - BOTTOM
        self.lines = [label(LEFT - 8, TOP - 18, y_title, "end")]
        for value in self._y_ticks:
            self.lines.append(line(LEFT, self.y(value), WIDTH - RIGHT, self.y(value)))
            self.lines.append(label(LEFT - 8, self.y(value) + 4, f"{value:{y_form}}", "end"))
        for value in self._x_ticks:
            self.lines.append(line(self.x(value), self._floor, self.x(value), self._floor + 4))
            self.lines.append(label(self.x(value), self._floor + 18, f"{value:g}", "middle"))
        middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
        self.lines.append(label(middle, self._floor + 36, x_title))

    def x(self, value: float) -> float:
        return LEFT + value / self._x_ticks[-1] * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self._floor - value / self._y_ticks[-1] * (self._floor - TOP)

    def course(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """A line through the points."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.lines.append(
            f'<polyline points="{path}" fill="none" stroke-width="1.6" '
            f'stroke-opacity=".8" stroke="{colour}"/>'
        )

    def svg(self, title: str) -> str:
        return svg(COURSE_HEIGHT, self.lines, title)


def ticks(highest: float, wanted: int) -> list[float]:
    """About `wanted` ticks, from 0 to at least `highest`, in steps of 1, 2 or 5 times 10**n."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    count = math.ceil(highest / step - 1e-9)
    return [float(f"{step * index:.12g}") for index in range(count + 1)]


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<line{named} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="dim" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def svg(height: int, lines: Sequence[str], title: str) -> str:
    inner = "\n".join(lines)
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>\n{inner}\n</svg></div>'
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[str] = ()) -> str:
    """An HTML table; the first column and those in `texts` are left-aligned."""
    text = ' class="text"'

    def cells(kind: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{kind}{text if name in texts else ''}>{escape(value)}</{kind}>"
            for name, value in zip(headers, values, strict=True)
        )

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{cells("th", headers)}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )
