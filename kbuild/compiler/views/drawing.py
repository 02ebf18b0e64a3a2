"""Drawings of layouts as SVG that needs nothing else: cells, their labels and colours."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from xml.etree import ElementTree

CELL_WIDTH, CELL_HEIGHT = 38, 20
MARGIN, HEADER = 12, 34
"""Space around everything, and for the numbers of rows and columns."""
LINE = 17
"""Height of a line of words."""
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
LETTER = 7.3
"""Width of a letter of 12 units, roughly, for lines that must not be cut off."""
LABEL_SIZES = ((5, 10.5), (7, 8.5), (9, 6.8))
"""Letters that fit into a cell in a size of font."""
SMALLEST_LABEL = 5.6
_GOLDEN = 0.61803398875
"""Turns that keep colours of neighbouring numbers apart."""


def colour(number: int, shade: float = 0.0, saturation: float = 0.62) -> str:
    """A colour for a number; the same in darker shades up to 1.  All are light enough for black letters."""
    red, green, blue = colorsys.hls_to_rgb((0.58 + number * _GOLDEN) % 1.0, 0.88 - 0.24 * shade, saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


class Drawing:
    """A picture that grows downwards: titles, lines of words, and grids of cells."""

    def __init__(self) -> None:
        self.root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": FONT})
        self.background = ElementTree.SubElement(
            self.root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"}
        )
        self.width = 0.0
        self.bottom = float(MARGIN)

    def text(self) -> str:
        """The picture as XML."""
        width, height = round(self.width + MARGIN), round(self.bottom + MARGIN)
        self.root.attrib.update(width=str(width), height=str(height), viewBox=f"0 0 {width} {height}")
        return ElementTree.tostring(self.root, encoding="unicode") + "\n"

    def title(self, words: str) -> None:
        """A line in bold letters."""
        self.words(words, weight="bold", size=14)

    def words(self, words: str, weight: str = "normal", size: int = 12) -> None:
        """A line of words."""
        self.bottom += LINE
        attributes = {
            "x": str(MARGIN),
            "y": _number(self.bottom),
            "font-size": str(size),
            "font-weight": weight,
        }
        ElementTree.SubElement(self.root, "text", attributes).text = words
        self._reach(MARGIN + len(words) * LETTER * size / 12)

    def gap(self) -> None:
        self.bottom += LINE / 2

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Boxes of colours, and what they stand for."""
        self.bottom += LINE
        x = float(MARGIN)
        for fill, words in entries:
            self._box(x, self.bottom - 11, 14, 12, fill)
            place = {"x": _number(x + 19), "y": _number(self.bottom), "font-size": "12"}
            ElementTree.SubElement(self.root, "text", place).text = words
            x += 30 + len(words) * LETTER
        self._reach(x)

    def grid(
        self,
        cells: Sequence[Sequence[tuple[str, str]]],
        rows: Sequence[str],
        columns: Sequence[str],
        ends: Sequence[str] = (),
    ) -> None:
        """A table of cells, each a label and a colour, with a header for each row and column; `ends` stand behind the
        rows.  Boxes of one colour are one path, and labels of one row one text, so that the file stays small."""
        left = MARGIN + max(HEADER, max(map(len, rows), default=0) * LETTER * 0.85 + 6)
        top = self.bottom + LINE + 4
        centres = [left + (number + 0.5) * CELL_WIDTH for number in range(max(map(len, cells), default=0))]
        boxes: dict[str, list[str]] = {}
        for number, row in enumerate(cells):
            for column, (_, fill) in enumerate(row):
                corner = f"M{_number(left + column * CELL_WIDTH)} {_number(top + number * CELL_HEIGHT)}"
                boxes.setdefault(fill, []).append(f"{corner}h{CELL_WIDTH}v{CELL_HEIGHT}h-{CELL_WIDTH}z")
        for fill, paths in boxes.items():
            if fill:
                self._add(
                    "path", {"d": "".join(paths), "fill": fill, "stroke": "#777777", "stroke-width": "0.5"}
                )
        grey = {"font-size": "10.5", "fill": "#555555"}
        self._labels(top - 5, centres, columns, {"text-anchor": "middle", **grey})
        for number, (row, head) in enumerate(zip(cells, rows)):
            y = top + number * CELL_HEIGHT + 14
            self._labels(y, [left - 5], [head], {"text-anchor": "end", **grey})
            self._labels(y, centres, [words for words, _ in row], {"text-anchor": "middle"})
            if ends:
                self._labels(y, [left + len(row) * CELL_WIDTH + 6], [ends[number]], grey)
        self._reach(left + len(centres) * CELL_WIDTH + max(map(len, ends), default=0) * LETTER)
        self.bottom = top + len(cells) * CELL_HEIGHT

    def _labels(
        self, y: float, places: Sequence[float], labels: Sequence[str], style: dict[str, str]
    ) -> None:
        """Labels on a line, in the font in which the longest fits into a cell."""
        longest = max(map(len, labels), default=0)
        size = next((size for letters, size in LABEL_SIZES if longest <= letters), SMALLEST_LABEL)
        line = self._add("text", {"y": _number(y), "font-size": str(size), **style})
        for x, words in zip(places, labels):
            if words:
                ElementTree.SubElement(line, "tspan", {"x": _number(x)}).text = words

    def _box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        place = {"x": _number(x), "y": _number(y), "width": _number(width), "height": _number(height)}
        self._add("rect", place | {"fill": fill, "stroke": "#777777", "stroke-width": "0.5"})

    def _add(self, tag: str, attributes: dict[str, str]) -> ElementTree.Element:
        return ElementTree.SubElement(self.root, tag, attributes)

    def _reach(self, right: float) -> None:
        self.width = max(self.width, right)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
