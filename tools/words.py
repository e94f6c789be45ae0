# SPDX-License-Identifier: Apache-2.0
"""Check that code and pages are written in plain English.

Fails on phrases that engineers do not use, and on variables that are named
with a bare participle. doc/source/contributor.rst says what to write instead.
"""

import argparse
import ast
import collections
from collections.abc import Iterator
from collections.abc import Sequence
import pathlib
import re
import subprocess
import sys
from typing import Any

#: These two have to name what the check looks for.
EXEMPT = ('tools/words.py', 'tests/unit/test_words.py')

#: Phrases that fail, as regular expressions; case makes no difference.
PHRASES = (
    'anew', 'beside', 'meanwhile', 'lest', 'whoever', 'whomever', 'so many',
    'stands on', 'tells of', 'to be had', '(?:is|are|was|were) told',
    # "is over 60" compares numbers.
    r'is over(?!\s+\d)',
    # A capital begins a sentence, unless a table shows the API's state.
    r'(?<!Out\s)(?-i:Of)')

#: Names that fail, besides all that end in "ed" or "en". Constants, which
#: may be states or events, pass.
PARTICIPLES = {
    'begun', 'caught', 'done', 'each', 'found', 'gone', 'held', 'kept',
    'known', 'left', 'lost', 'made', 'met', 'said', 'sent', 'shown', 'told'}

#: Names with these endings that pass.
ALLOWED = {
    # No participles.
    'children', 'even', 'len', 'need', 'open', 'screen', 'seed', 'speed',
    'then', 'token', 'when',
    # Conventions of Python: "seen = set()", "assert result == expected", the
    # parameter "required=True".
    'expected', 'required', 'seen',
    # Keys of the API and of the policy.
    'considered', 'eliminated', 'ignored', 'requested', 'reserved', 'taken',
    'unowned', 'used',
}

# Between the words of a phrase: a space, an underscore, or what continues a
# comment or a string in the next line.
_GAP = r'''(?:[\s#_'"]+(?:f['"])?)'''
_PHRASE = re.compile(
    f'(?<![a-z])(?:{"|".join(PHRASES).replace(" ", _GAP)})(?![a-z])', re.I)
_PARTICIPLE = re.compile(f'{"|".join(sorted(PARTICIPLES))}|[a-z]+(?:ed|en)')

_SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# What binds a variable, and where the syntax tree has its name.
_BINDINGS = {ast.Name: 'id', ast.Attribute: 'attr', ast.arg: 'arg',
             ast.ExceptHandler: 'name', ast.MatchAs: 'name',
             ast.MatchStar: 'name'}


def find_phrases(text: str) -> list[tuple[int, str]]:
    """Return the line and the text of each phrase that fails."""
    return [(text.count('\n', 0, match.start()) + 1,
             re.sub(_GAP, ' ', match[0])) for match in _PHRASE.finditer(text)]


def find_variables(scope: ast.AST) -> Iterator[dict[str, int]]:
    """Yield the variables of each module and function, lines by name.

    Fields in the body of a class are left out, because most are named after
    keys of the API or columns of the database.

    :param scope: syntax tree of a module, class or function.
    """
    variables: dict[str, int] = {}
    nodes: list[Any] = list(ast.iter_child_nodes(scope))
    for node in nodes:
        if isinstance(node, _SCOPES):
            yield from find_variables(node)
            continue
        nodes += ast.iter_child_nodes(node)
        name = getattr(node, _BINDINGS.get(type(node), ''), None)
        is_bound = isinstance(getattr(node, 'ctx', ast.Store()), ast.Store)
        is_field = isinstance(scope, ast.ClassDef) and hasattr(node, 'id')
        if name and is_bound and not is_field:
            variables.setdefault(name, node.lineno)
    yield variables


def is_participle(name: str) -> bool:
    """Return whether a name is a bare participle, or begins with "of"."""
    word = name.strip('_')
    return bool(word.startswith('of_') or word not in ALLOWED
                and _PARTICIPLE.fullmatch(word))


def check_file(path: str, text: str) -> tuple[
        list[tuple[int, str]], list[tuple[int, str]], int]:
    """Check a file.

    :returns: the phrases that fail, the variables that fail, and the number
        of all variables.
    """
    variables: list[tuple[str, int]] = []
    if path.endswith('.py'):
        variables = [item for scope in find_variables(ast.parse(text))
                     for item in scope.items()]
    return find_phrases(text), [
        (line, name) for name, line in variables if is_participle(name)
    ], len(variables)


def read_files() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file that git knows."""
    names = subprocess.run(['git', 'ls-files', '-z'], check=True,
                           capture_output=True, text=True).stdout
    for path in names.split('\0'):
        if path and path not in EXEMPT:
            try:
                yield path, pathlib.Path(path).read_text()
            except (UnicodeDecodeError, FileNotFoundError,
                    IsADirectoryError):
                pass  # an image, or deleted and not yet committed, or a link


def find_package(path: str) -> str:
    """Return the folder, of one or two levels, in which a file is counted."""
    parents = path.split('/')[:-1]
    return '/'.join(parents[:2]) or '.'


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--count', action='store_true',
                        help='show the counts of each package')
    args = parser.parse_args(argv)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter)
    status = 0
    for path, text in read_files():
        phrases, participles, total = check_file(path, text)
        counts[find_package(path)].update(
            phrases=len(phrases), participles=len(participles), total=total)
        if args.count:
            continue
        for line, words in sorted(phrases + participles):
            print(f'{path}:{line}: {words}')
            status = 1
    if args.count:
        for package, count in sorted(counts.items()):
            print(f'{package:40}{count["phrases"]:6}'
                  f'{count["participles"]:6} of {count["total"]}')
    return status


if __name__ == '__main__':
    sys.exit(main())
