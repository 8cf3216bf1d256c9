"""Plain tables: columns as wide as their content, two spaces between, no frames."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_supervise.cli.say import Style


def rows(
    header: Sequence[str],
    body: Sequence[Sequence[str]],
    *,
    style: Style,
    right: frozenset[int] = frozenset(),
    colours: Sequence[Sequence[tuple[str, ...]]] = (),
    indent: int = 0,
) -> list[str]:
    """Lines of a table. right: columns flush right. colours: per cell, applied after the widths are known."""
    table = [list(header), *[list(row) for row in body]] if header else [list(row) for row in body]
    if not table:
        return []
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    first = 1 if header else 0
    lines = []
    for number, row in enumerate(table):
        cells = []
        for i, cell in enumerate(row):
            padded = cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            if number < first:
                padded = style.paint(padded, "dim")
            elif colours:
                padded = style.paint(padded, *colours[number - first][i])
            cells.append(padded)
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines
