# SPDX-License-Identifier: Apache-2.0
"""Drains the nodes of Slurm whose machines have a planned or open notice.

    OS_CLOUD=demo python slurm_drain.py [--within DAYS]

A node of Slurm has the name of its server. It is resumed when its machine has
no such notice any more, if its reason is still the one that is set here.
"""

import argparse
import collections
import datetime
import re
import subprocess

import openstack

from ironic_reservations import sdk

REASON = 'notice of ironic-reservations:'

parser = argparse.ArgumentParser()
parser.add_argument('--within', type=float, metavar='DAYS', default=3650,
                    help='Only if the notice begins within this time')
within = datetime.timedelta(parser.parse_args().within)
limit = datetime.datetime.now(datetime.UTC) + within

conn = openstack.connect()
conn.add_service(sdk.SERVICE)
names = {server.id: server.name for server in conn.compute.servers()}
# All is read before a node is changed, so an error resumes none.
reasons = collections.defaultdict(list)
for reservation in conn.baremetal_reservations.list(
        fields='instance_uuid,notices'):
    if reservation.instance_uuid in names:
        # Servers may have the same name.
        reasons[names[reservation.instance_uuid]] += [
            f'{REASON} {notice["kind"]} from {notice["starts_at"]}'
            for notice in reservation.notices
            if datetime.datetime.fromisoformat(notice['starts_at']) <= limit]
nodes = subprocess.run(['scontrol', '--oneliner', 'show', 'node'], check=True,
                       stdout=subprocess.PIPE, text=True).stdout

for node in nodes.splitlines():
    name = re.match(r'NodeName=(\S+)', node)[1]
    is_drained = re.search(r' State=\S*DRAIN', node)
    if name not in reasons:
        continue  # No server of this project has the name.
    if reasons[name] and not is_drained:
        changes = ['State=DRAIN', f'Reason={reasons[name][0]}']
    elif not reasons[name] and is_drained and f' Reason={REASON}' in node:
        changes = ['State=RESUME']
    else:
        continue
    print(name, *changes)
    subprocess.run(['scontrol', 'update', f'NodeName={name}', *changes],
                   check=True)
