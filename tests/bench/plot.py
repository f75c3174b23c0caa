"""What a bench measured, as a picture.

Receives results, figures or curves and a file, writes a picture of the kind that the file's name
ends with. Never measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from relay.errors import ConfigError
from tests.bench.figures import Curve, Figure
from tests.bench.measure import Result

KINDS = (".png", ".svg", ".pdf")
_COLOURS = {"product": "tab:orange", "peer": "tab:blue", "ceiling": "tab:gray"}
_WIDTH = 9.0  # inches

# The same figures give the same file, as a history in git wants it.
mpl.rcParams["svg.hashsalt"] = "block-relay"
mpl.rcParams["svg.fonttype"] = "none"  # letters, so that a picture can be searched


def check(file: Path) -> None:
    """Before an hour is spent on a picture that cannot be drawn.

    Raises:
        ConfigError: the name says no kind that can be written, or its directory is not there.
    """
    if file.suffix not in KINDS:
        raise ConfigError(f"--plot {file}: no such kind of picture", f"End it with {KINDS}.")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"--plot {file}: its directory is not there", "Make it first.")


def results(of: Sequence[Result], title: str, file: Path) -> None:
    """A bar for each contender's median, a dot for each round; one panel per rows per message."""
    shapes = sorted({result.per_message for result in of})
    picture, panels = _panels(len(shapes), 0.5 * len(of) / len(shapes) + 1.2)
    for panel, per_message in zip(panels, shapes, strict=True):
        shown = [r for r in of if r.per_message == per_message]
        names = [result.contender for result in shown]
        medians = [result.median / 1e6 for result in shown]
        panel.barh(names, medians, color=[_COLOURS[r.role] for r in shown], alpha=0.6)
        for result in shown:
            rounds = [run.rows_per_second / 1e6 for run in result.runs]
            panel.plot(rounds, [result.contender] * len(rounds), "k.", markersize=4)
        panel.invert_yaxis()
        panel.set_xlabel("million rows per second")
        panel.set_title(f"{per_message} row{'s' if per_message > 1 else ''} per message")
    _write(picture, title, file)


def figures(of: Sequence[Figure], title: str, file: Path) -> None:
    """A bar for each figure, one panel per unit; a line where the project demands something."""
    units = list(dict.fromkeys(figure.unit for figure in of))
    picture, panels = _panels(len(units), 0.3 * len(of) / len(units) + 1.2)
    for panel, unit in zip(panels, units, strict=True):
        shown = [figure for figure in of if figure.unit == unit]
        panel.barh([f.name for f in shown], [f.value for f in shown], alpha=0.6)
        for place, figure in enumerate(shown):
            if figure.limit is not None:
                panel.plot([figure.limit] * 2, [place - 0.45, place + 0.45], "r-")
        panel.invert_yaxis()
        panel.set_xlabel(unit or "ratio")
    _write(picture, title, file)


def curves(of: Sequence[Curve], title: str, file: Path) -> None:
    """A line for each curve over its setting, one panel per unit."""
    units = list(dict.fromkeys(curve.unit for curve in of))
    picture, panels = _panels(len(units), 3.2)
    for panel, unit in zip(panels, units, strict=True):
        for curve in of:
            if curve.unit == unit:
                panel.plot(*zip(*curve.points, strict=True), "o-", markersize=3, label=curve.name)
        panel.set_xscale("log")
        if min(value for curve in of if curve.unit == unit for _, value in curve.points) >= 0:
            panel.set_ylim(bottom=0)
        panel.set_xlabel("seconds between commits")
        panel.set_ylabel(unit)
        panel.legend(fontsize="x-small")
    _write(picture, title, file)


def _panels(many: int, height: float) -> tuple[Picture, list[Axes]]:
    # Not through pyplot: it keeps what it has drawn, and asks for a display.
    picture = Picture(figsize=(_WIDTH, height * many), layout="constrained")
    return picture, list(picture.subplots(many, squeeze=False)[:, 0])


def _write(picture: Picture, title: str, file: Path) -> None:
    picture.suptitle(title)
    dated: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    picture.savefig(file, metadata=dated.get(file.suffix))
