# SPDX-License-Identifier: Apache-2.0
"""Our application without one of the things that requests leave to the next.

It shows what each of them buys. The environment variable WITHOUT names it.
"""

import os

from ironic_reservations import wsgi
from ironic_reservations.fleet import search
from ironic_reservations.fleet import shelf


def shelves():
    """Every hold reads the node that it takes."""
    shelf.PAGE = 1


def rest():
    """Every hold looks first where another has just found nothing."""
    search.LONGEST_REST = 0


{'shelves': shelves, 'rest': rest}[os.environ['WITHOUT']]()
application = wsgi.application
