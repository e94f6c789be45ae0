# SPDX-License-Identifier: Apache-2.0
"""Text of clients, made fit for a line of a log or a terminal."""

import re

# Control characters, the line and paragraph separators of Unicode, and lone
# surrogates, which cannot be encoded. Some of them begin a new line in a log,
# or are commands to a terminal.
_UNPRINTABLE = re.compile(
    '[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def printable(text):
    r"""A text in which characters such as a newline are escapes (``\n``)."""
    return _UNPRINTABLE.sub(
        lambda found: found[0].encode('unicode_escape').decode(), text)
