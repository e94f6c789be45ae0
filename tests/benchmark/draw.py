# SPDX-License-Identifier: Apache-2.0
"""The figures as a picture: by size of the fleet, both axes logarithmic."""

import matplotlib

matplotlib.use('svg')
# One and the same picture of the same figures, and text that is text.
matplotlib.rcParams.update({'svg.hashsalt': 'ironic-reservations',
                            'svg.fonttype': 'none', 'font.size': 9})

from matplotlib import pyplot  # noqa: E402

_PANELS = (
    ('one client: milliseconds until a node is held',
     (('hold, mix', 'a reservation'), ('floor', 'UPDATE, INSERT, COMMIT'),
      ('allocation', "Ironic's allocation"))),
    ('eight clients: nodes held per second',
     (('hold rate', 'reservations'),
      ('floor rate', 'UPDATE, INSERT, COMMIT'),
      ('allocation rate', "Ironic's allocations"))),
)


def draw(path, sizes, found):
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for axes, (title, lines) in zip(panels, _PANELS, strict=True):
        for (name, label), style in zip(lines, ('o-', 's--', '^:'),
                                        strict=True):
            known = [size for size in sizes if (name, size) in found]
            if known:
                axes.loglog(known, [found[name, size] for size in known],
                            style, label=label)
        axes.set(title=title, xlabel='nodes', xticks=sizes)
        axes.xaxis.set_major_formatter('{x:,.0f}')
        axes.yaxis.set_major_formatter('{x:,g}')
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None})
