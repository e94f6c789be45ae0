# SPDX-License-Identifier: Apache-2.0
"""What the worst texts of 64 KiB cost, the dearest first.

    .tox/py3/bin/python -m tests.benchmark.texts

Milliseconds of processor time, and how many times those of half the text they
are. The tests see to it that these are no more than three; see
``tests/unit/worst_texts.py``.
"""

from rich import console
from rich import table

from tests.common import growth
from tests.unit import worst_texts

#: Milliseconds that nothing of it should take.
AIM = 50


def main():
    found = {}
    with worst_texts.application() as application:
        for name, prepare in {
                **worst_texts.CALLS,
                **{f'request: {name}': worst_texts.send(application, name)
                   for name in worst_texts.REQUESTS}}.items():
            found[name] = [1000 * growth.cost(prepare(length)) for length in
                           (growth.LONG, growth.LONG // 2)]
    shown = table.Table('text', 'ms', 'times half of it')
    for name, (whole, half) in sorted(found.items(),
                                      key=lambda item: -item[1][0])[:30]:
        shown.add_row(name, f'{whole:.1f}', f'{whole / half:.1f}')
    console.Console().print(shown)
    print(f'{sum(whole > AIM for whole, _ in found.values())} of '
          f'{len(found)} texts take more than {AIM} ms')


if __name__ == '__main__':
    main()
