# SPDX-License-Identifier: Apache-2.0
"""Sum the JUnit XML files that the test runners left in a folder.

Each test that failed is named with the suite that it is of. The last line
says ``N passed, N failed, N skipped``. The status is 0 only if something
passed and nothing failed. A file without any test case counts as a failure:
its runner never came to the tests.
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
    """The outcome and the name of each test case in a file."""
    cases = [(outcome(case), f'{case.get("classname")}.{case.get("name")}')
             for case in ElementTree.parse(path).iter('testcase')]
    return cases or [('failed', 'no test has run')]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--no-skips', action='store_true',
                        help='a skipped test is a failure')
    parser.add_argument('folder', help='where the *.xml files are')
    args = parser.parse_args(argv)
    told = {'failed', 'skipped'} if args.no_skips else {'failed'}
    total = collections.Counter()
    for path in sorted(pathlib.Path(args.folder).glob('*.xml')):
        for result, name in outcomes(path):
            total[result] += 1
            if result in told:
                print(f'{result}: {path.stem}: {name}')
    print(f'{total["passed"]} passed, {total["failed"]} failed, '
          f'{total["skipped"]} skipped')
    return int(not total['passed'] or any(total[each] for each in told))


if __name__ == '__main__':
    sys.exit(main())
