# SPDX-License-Identifier: Apache-2.0
"""Sum the JUnit XML files that the test runners wrote into a folder.

Prints the suite and the name of each test that failed. The last line is ``N
passed, N failed, N skipped``. The exit status is 0 only if some test passed
and none failed. A file without test cases counts as a failure, because its
runner did not start the tests.
"""

import argparse
import collections
from collections.abc import Sequence
import pathlib
import sys
from xml.etree import ElementTree


def read_outcome(case: ElementTree.Element) -> str:
    """Return the outcome of a test case.

    An error in its fixtures is a failure.
    """
    tags = {child.tag for child in case}
    if tags & {'error', 'failure'}:
        return 'failed'
    return 'skipped' if 'skipped' in tags else 'passed'


def read_outcomes(path: pathlib.Path) -> list[tuple[str, str]]:
    """Return the outcome and the name of each test case in a file."""
    cases = [(read_outcome(case),
              f'{case.get("classname")}.{case.get("name")}')
             for case in ElementTree.parse(path).iter('testcase')]
    return cases or [('failed', 'no test was run')]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--no-skips', action='store_true',
                        help='count a skipped test as a failure')
    parser.add_argument('folder', help='where the *.xml files are')
    args = parser.parse_args(argv)
    failures = {'failed', 'skipped'} if args.no_skips else {'failed'}
    total: collections.Counter[str] = collections.Counter()
    for path in sorted(pathlib.Path(args.folder).glob('*.xml')):
        for result, name in read_outcomes(path):
            total[result] += 1
            if result in failures:
                print(f'{result}: {path.stem}: {name}')
    print(f'{total["passed"]} passed, {total["failed"]} failed, '
          f'{total["skipped"]} skipped')
    return int(not total['passed']
               or any(total[result] for result in failures))


if __name__ == '__main__':
    sys.exit(main())
