# SPDX-License-Identifier: Apache-2.0
"""Functions of the scripts for NVIDIA's AI Cloud Validation Suite."""

import argparse
import contextlib
import json
import sys

from keystoneauth1 import exceptions as ksa_exceptions
import openstack
from openstack import exceptions

from ironic_reservations import sdk

#: Key of the domain that the suite calls rack or topology block.
DOMAIN = 'capability:rack'

#: Values of a node's health with which it is not reserved: [reservations]
#: refuse_health of ironic.conf.
REFUSED_HEALTH = {'Critical'}


class Skip(Exception):
    """The step cannot be tried here, for the reason that the text gives."""


def connect(cloud):
    """Return a Connection to a cloud in clouds.yaml."""
    conn = openstack.connect(cloud=cloud)
    sdk.add_to(conn)
    return conn


def run(step, *options):
    """Run a step, print its result as JSON, and exit.

    :param step: called with a Connection and the arguments; returns the keys
        that the suite documents. It may raise Skip.
    :param options: names of required arguments.
    """
    parser = argparse.ArgumentParser(description=step.__doc__)
    parser.add_argument('--cloud', help='cloud in clouds.yaml')
    for name in options:
        parser.add_argument(f'--{name}', required=True)
    args = parser.parse_args()
    result = {'success': False, 'platform': 'openstack'}
    try:
        result |= {**step(connect(args.cloud), args), 'success': True}
    except Skip as reason:
        result |= {'success': True, 'skipped': True,
                   'skip_reason': str(reason)}
    except (exceptions.SDKException, ksa_exceptions.ClientException,
            OSError, ValueError) as error:
        result['error'] = str(error)
    print(json.dumps(result, indent=2))
    sys.exit(0 if result['success'] else 1)


@contextlib.contextmanager
def create_notices(conn, kind, **target):
    """Create notices, and close them at the end.

    :param target: ``nodes`` or ``by`` of the request.
    """
    reservations = conn.baremetal_reservations
    notices = reservations.create_notices(
        kind, description='Test of the validation suite', **target)
    try:
        yield notices
    finally:
        reservations.close_notices(notices[0].uuid, action='Only a test')


def find_reservation(conn, machine):
    """Return the reservation of a machine.

    :raises: ValueError if the caller sees none.
    """
    for reservation in conn.baremetal_reservations.list(node=machine):
        return reservation
    raise ValueError(f'Machine {machine} is not reserved, or its reservation '
                     f'is not visible to this login')


def describe_event(notice):
    """Return what BFX02 requires of an event, as far as it is known."""
    return {
        'machine_id': notice.node_uuid,
        'status': notice.state,
        'message': notice.description or '',
        'category': notice.category,
        'action': notice.action,
        'ticket_id': notice.ticket or notice.uuid,
        'opened_at': notice.created_at,
        'updated_at': notice.updated_at or notice.created_at,
        'starts_at': notice.starts_at,
        'closed_at': notice.ends_at if notice.state == 'closed' else None}


def list_notifications(conn, path, name, **query):
    """Yield each notice that was mailed to the project, and its notification.

    :param path: file in which notices_mail.py has recorded its mails.
    :param name: type of the notification.
    :param query: filters of the notices.
    """
    deliveries = {}
    with open(path, encoding='utf-8') as lines:
        for delivery in map(json.loads, lines):
            if delivery['project_id'] == conn.current_project_id:
                # The first mail counts.
                deliveries.setdefault(
                    (delivery['uuid'], delivery['node_uuid']),
                    delivery['delivered_at'])
    for notice in conn.baremetal_reservations.notices(**query):
        key = notice.uuid, notice.node_uuid
        if key in deliveries:
            yield notice, {
                'machine_id': notice.node_uuid, 'type': name,
                'message': notice.description or '',
                'notified_at': deliveries[key]}


def is_healthy(maintenance, health, notices):
    """Return whether a machine counts as healthy in the capacity.

    :param maintenance: Ironic's flag.
    :param health: Ironic's word, or None.
    :param notices: planned and open notices.
    """
    return not maintenance and health not in REFUSED_HEALTH and not any(
        notice.state == 'open' for notice in notices)


def count_gpus(node):
    """Return the number in the capability ``gpus`` of a node of Ironic."""
    for capability in (node.properties.get('capabilities') or '').split(','):
        name, _, value = capability.partition(':')
        if name == 'gpus':
            return int(value)
    return 0
