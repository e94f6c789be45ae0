# SPDX-License-Identifier: Apache-2.0
"""Our application without one of the things that requests leave to the next.

It shows what each of them buys. The environment variable WITHOUT names it.
"""

import os

from ironic_reservations import interval
from ironic_reservations import reservations
from ironic_reservations import search
from ironic_reservations import shelf
from ironic_reservations import wsgi


def shelves():
    """Every hold reads the node that it takes."""
    shelf.PAGE = 1


def rest():
    """Every hold looks first where another has just found nothing."""
    search.LONGEST_REST = 0


def passing():
    """Every hold looks for leases that are over."""
    reservations.PASSING = interval.Interval(0)


{'shelves': shelves, 'rest': rest, 'passing': passing}[os.environ['WITHOUT']]()
application = wsgi.application
