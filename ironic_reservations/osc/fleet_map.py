# SPDX-License-Identifier: Apache-2.0
"""The fleet as bars in the terminal: ``capacity list --map``."""

from rich import console as rich_console
from rich import table
from rich import text

#: The parts of a bar, in their order: the key of the row, the word for it, the
#: character that draws it, another one for terminals without Unicode, and the
#: colour, which tells nothing that the character does not.
PARTS = (('free', 'free', '█', '#', 'green'),
         ('reserved', 'reserved', '▓', '+', 'yellow'),
         ('taken', 'taken', '▒', '=', 'blue'),
         ('out_of_service', 'out of service', '░', '.', 'bright_black'))


class _Bar:
    """A bar that takes what room its row has left.

    :param row: the counts of the row.
    :param largest: the largest total of all rows, whose bar fills the room.
    """

    def __init__(self, row, largest):
        self.row, self.largest = row, largest

    def __rich_console__(self, console, options):
        bar = text.Text()
        for (_, _, *characters, colour), cells in zip(
                PARTS, self.cells(options.max_width), strict=True):
            bar.append(characters[options.ascii_only] * cells, colour)
        yield bar

    def __rich_measure__(self, console, options):
        return rich_console.Measurement(len(PARTS), options.max_width)

    def cells(self, width):
        """How many characters each part has: one where it is not empty."""
        counts = [self.row[key] for key, *_ in PARTS]
        cells = [count and max(1, round(count * width / self.largest))
                 for count in counts]
        # What small parts were given too much, the longest part gives back.
        while sum(cells) > width:
            cells[cells.index(max(cells))] -= 1
        return cells


def draw(file, rows):
    """Print a legend with the sums, and a bar for each row.

    :param file: where to print; its width is that of the terminal.
    :param rows: list of labels, texts, with the counts of each, dicts.
    """
    console = rich_console.Console(file=file, highlight=False, markup=False)
    legend = text.Text()
    for key, word, *characters, colour in PARTS:
        legend.append(characters[console.options.ascii_only] * 2, colour)
        legend.append(f' {sum(row[key] for _, row in rows)} {word}   ')
    console.print(legend)
    largest = max((row['total'] for _, row in rows), default=0)
    bars = table.Table.grid(padding=(0, 1), expand=True)
    bars.add_column(overflow='fold', max_width=console.width * 2 // 5)
    bars.add_column(ratio=1)
    bars.add_column(justify='right', no_wrap=True)
    for label, row in rows:
        bars.add_row(_printable(label), _Bar(row, largest or 1),
                     f'{row["free"]} of {row["total"]}')
    console.print(bars)


def _printable(label):
    # What operators write into properties is not to move the cursor.
    return text.Text(''.join(each if each.isprintable() else '?'
                             for each in label))
