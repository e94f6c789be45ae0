# SPDX-License-Identifier: Apache-2.0
"""Sum the JUnit XML files that the test runners left in a folder.

The last line says ``N passed, N failed, N skipped``. The status is 0 only if
something passed and nothing failed. A file without any test case counts as a
failure: its runner never came to the tests.
"""

import argparse
import collections
import pathlib
import sys
from xml.etree import ElementTree


def outcome(case):
    """One test case's outcome; an error in its fixtures is a failure."""
    tags = {child.tag for child in case}
    if tags & {'error', 'failure'}:
        return 'failed'
    return 'skipped' if 'skipped' in tags else 'passed'


def outcomes(path):
    cases = list(ElementTree.parse(path).iter('testcase'))
    return [outcome(case) for case in cases] or ['failed']


def count(folder):
    return collections.Counter(
        each for path in sorted(pathlib.Path(folder).glob('*.xml'))
        for each in outcomes(path))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--no-skips', action='store_true',
                        help='a skipped test is a failure')
    parser.add_argument('folder', help='where the *.xml files are')
    args = parser.parse_args(argv)
    total = count(args.folder)
    print(f'{total["passed"]} passed, {total["failed"]} failed, '
          f'{total["skipped"]} skipped')
    return int(not total['passed'] or bool(total['failed'])
               or (args.no_skips and bool(total['skipped'])))


if __name__ == '__main__':
    sys.exit(main())
