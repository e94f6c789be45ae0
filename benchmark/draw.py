# SPDX-License-Identifier: Apache-2.0
"""The figures as pictures: by size of the fleet, and by its shape.

Axes are logarithmic.
"""

import matplotlib

matplotlib.use('svg')
# Draw the same picture for the same figures, with text as text.
matplotlib.rcParams.update({'svg.hashsalt': 'ironic-reservations',
                            'svg.fonttype': 'none', 'font.size': 9})

from matplotlib import pyplot  # noqa: E402

_PANELS = (
    ('one client: milliseconds until a node is held',
     (('hold, alternating requests', 'a reservation'),
      ('floor', 'UPDATE, INSERT, COMMIT'))),
    ('eight clients: nodes held per second',
     (('hold rate', 'reservations'),
      ('floor rate', 'UPDATE, INSERT, COMMIT'))),
)


def draw_performance(path, sizes, results):
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for axes, (title, lines) in zip(panels, _PANELS, strict=True):
        for (name, label), style in zip(lines, ('o-', 's--'), strict=True):
            points = [(size, results[name, size]) for size in sizes
                      if (name, size) in results]
            if points:
                axes.loglog(*zip(*points, strict=True), style, label=label)
        axes.set(title=title, xlabel='nodes', xticks=sizes)
        axes.xaxis.set_major_formatter('{x:,.0f}')
        axes.yaxis.set_major_formatter('{x:,g}')
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None})


def draw_shapes(path, results):
    """Draw the processor time of calls, with a bar for each shape of a fleet.

    :param results: see ``shapes.Calls``, by the name of the shape.
    """
    calls = [*reversed(dict.fromkeys(
        call for figures in results.values() for call in figures))]
    figure, axes = pyplot.subplots(figsize=(9, 5.6))
    height = 0.8 / len(results)
    for number, (shape, figures) in enumerate(reversed(results.items())):
        bars = [(row + number * height, sum(figures[call][1:]))
                for row, call in enumerate(calls) if call in figures]
        axes.barh(*zip(*bars, strict=True), height, label=shape)
    axes.set(xscale='log', yticks=[row + 0.4 for row in range(len(calls))],
             yticklabels=calls,
             xlabel="milliseconds of the worker's processor and MariaDB's")
    axes.xaxis.set_major_formatter('{x:,g}')
    axes.grid(axis='x', alpha=0.3)
    axes.legend(reverse=True)
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None})
