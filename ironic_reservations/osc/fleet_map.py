# SPDX-License-Identifier: Apache-2.0
"""Draws the fleet as bars in the terminal: ``capacity list --map``."""

from typing import TextIO

from rich import console
from rich import measure
from rich import table
from rich import text

from ironic_reservations.osc import client

#: Parts of a bar, in order: the key of the row, its name, the character that
#: draws it, its substitute for terminals without Unicode, and the colour,
#: which only repeats the meaning of the character.
PARTS = (('free', 'free', '█', '#', 'green'),
         ('reserved', 'reserved', '▓', '+', 'yellow'),
         ('taken', 'taken', '▒', '=', 'blue'),
         ('out_of_service', 'out of service', '░', '.', 'bright_black'))


class _Bar:
    """A bar that fills the remaining width of its row.

    :param row: the counts of the row.
    :param largest: the largest total of all rows, whose bar has full width.
    """

    def __init__(self, row: client.Data, largest: int) -> None:
        self.row, self.largest = row, largest

    def __rich_console__(
            self, terminal: console.Console,
            options: console.ConsoleOptions) -> console.RenderResult:
        bar = text.Text()
        for (_, _, *characters, colour), width in zip(
                PARTS, self.compute_widths(options.max_width), strict=True):
            bar.append(characters[options.ascii_only] * width, colour)
        yield bar

    def __rich_measure__(
            self, terminal: console.Console,
            options: console.ConsoleOptions) -> measure.Measurement:
        return measure.Measurement(len(PARTS), options.max_width)

    def compute_widths(self, width: int) -> list[int]:
        """Return the characters of each part: at least one unless empty."""
        counts = [self.row[key] for key, *_ in PARTS]
        widths = [count and max(1, round(count * width / self.largest))
                  for count in counts]
        # The longest part makes up for small parts that are rounded up.
        while sum(widths) > width:
            widths[widths.index(max(widths))] -= 1
        return widths


def draw_map(file: TextIO, rows: list[tuple[str, client.Data]]) -> None:
    """Print a legend with the sums, and a bar for each row.

    :param file: where to print; its width is that of the terminal.
    :param rows: label and counts of each row.
    """
    terminal = console.Console(file=file, highlight=False, markup=False)
    legend = text.Text()
    for key, name, *characters, colour in PARTS:
        legend.append(characters[terminal.options.ascii_only] * 2, colour)
        legend.append(f' {sum(row[key] for _, row in rows)} {name}   ')
    terminal.print(legend)
    largest = max((row['total'] for _, row in rows), default=0)
    bars = table.Table.grid(padding=(0, 1), expand=True)
    bars.add_column(overflow='fold', max_width=terminal.width * 2 // 5)
    bars.add_column(ratio=1)
    bars.add_column(justify='right', no_wrap=True)
    for label, row in rows:
        bars.add_row(_make_printable(label), _Bar(row, largest or 1),
                     f'{row["free"]} of {row["total"]}')
    terminal.print(bars)


def _make_printable(label: str) -> text.Text:
    # Names in properties of nodes must not move the cursor.
    return text.Text(''.join(
        character if character.isprintable() else '?' for character in label))
