# SPDX-License-Identifier: Apache-2.0
"""Actions of argparse."""

import argparse
from typing import Any

from osc_lib.cli import parseractions

from ironic_reservations.osc import units


class StoreOnce(argparse.Action):
    """Stores the value of an argument; refuses to replace that of an option.

    An option that uses it has no default.
    """

    def __call__(self, parser: argparse.ArgumentParser,
                 namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        if option_string and getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, 'is given more than once')
        setattr(namespace, self.dest, values)


class PropertyAction(parseractions.KeyValueAction):
    """Parses ``<key>=<value>``; refuses to replace a value."""

    def __call__(self, parser: argparse.ArgumentParser,
                 namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        properties = {**getattr(namespace, self.dest)}
        key = values.partition('=')[0]
        if key in properties:
            raise argparse.ArgumentError(self, f'{key} is given more than '
                                               f'once')
        # The base class would change the default.
        setattr(namespace, self.dest, properties)
        super().__call__(parser, namespace, values, option_string)


class LevelAction(parseractions.MultiKeyValueAction):
    """Parses ``by=<domain>,policy=<policy>[,segment=<number>]``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required_keys=['by', 'policy'],
                         optional_keys=['segment'], **kwargs)

    def __call__(self, parser: argparse.ArgumentParser,
                 namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        super().__call__(parser, namespace, values, option_string)
        level = getattr(namespace, self.dest)[-1]
        if len(level) <= values.count(','):
            raise argparse.ArgumentError(self, 'a key is given more than once')
        if 'segment' in level:
            try:
                level['segment'] = units.parse_number(level['segment'])
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentError(self, f'segment {error}')
