# SPDX-License-Identifier: Apache-2.0
"""A host that has servers on rows per node becomes one row, and back.

Its servers run on meanwhile, and nothing of Ironic's nodes is written. Three
things tell where an instance is, and they change in this order, because each
needs the one before:

1. The reservation. With it the host's inventory has room for the instance.
2. The allocation in Placement. As long as it is that of the row before, Nova
   must find the instance there: it deletes a row without instances together
   with their allocations.
3. The instance's ``node`` and ``compute_id``.

Each step can be taken again, so a host that was killed between two of them
goes on when it has started again.
"""

import time

from nova import context as nova_context
from nova import objects
from oslo_log import log as logging

from . import client
from . import mode
from . import placement
from . import reconciler
from . import wanted

LOG = logging.getLogger(__name__)

#: Seconds after which a host that has its one row only looks at all of its
#: instances again.
ALL_AGAIN = 600


class Adoption(reconciler.Reconciler):
    """Brings the instances of a host to the rows that it has now.

    The other parameters are those of Reconciler.

    :param is_one_row: function without arguments that says whether the host
        is one row; None as long as that is not known.
    :param carriers: function without arguments that returns the UUIDs of the
        nodes of a host with a row per node, by the UUID of the instance that
        they carry.
    """

    def __init__(self, host, is_one_row, report, reservations, reportclient,
                 carriers):
        super().__init__(host, report, reservations, reportclient)
        self._is_one_row = is_one_row
        self._carriers = carriers
        # When to look at all instances again, on time.monotonic().
        self._look_again = 0

    def round(self):
        """Bring over what is at rest, and leave the rest to the next round.

        :returns: how many instances were brought over, and how many are left.
        """
        ctxt, one_row = nova_context.get_admin_context(), self._is_one_row()
        own = one_row is not None and mode.row(self._host, self._host)
        if not own:
            return 0, 0
        if one_row:
            # Without another row there may still be an instance on one that
            # has gone, after a database was restored. All are looked at then.
            if (len(mode.rows(self._host)) == 1
                    and time.monotonic() < self._look_again):
                return 0, 0
            own_consumers = {}
        else:
            # What was interrupted on its way to the one row may have its
            # allocation there. The other way round the driver puts it back.
            own_consumers = placement.read(self._reportclient, own.uuid) or {}
        waiting = [each for each in objects.InstanceList.get_by_host(
                       ctxt, self._host, expected_attrs=[])
                   if each.node and (each.node != self._host) == one_row
                   or each.uuid in own_consumers]
        if not waiting:
            self._look_again = time.monotonic() + ALL_AGAIN
        ready = []
        for each in waiting:
            if placement.is_at_rest(each):
                ready.append(each.uuid)
            else:
                self.tell(each.uuid, f'Nova is at work on it '
                                     f'({each.task_state or each.vm_state})')
        if one_row:
            done = self._to_one_row(ctxt, ready, own)
        else:
            done = self._to_nodes(ctxt, ready)
        if done:
            LOG.info('Host %s has brought %d instances to %s; %d are left',
                     self._host, done, 'its one row' if one_row
                     else 'the rows of their nodes', len(waiting) - done)
        return done, len(waiting) - done

    def _to_one_row(self, ctxt, ready, row):
        if self._report.partition is None:
            self._report.look(None)
        adopted = [uuid for uuid in ready
                   if self.locked(ctxt, uuid, self._adopt)]
        if not adopted:
            return 0
        self.make_room(row)
        return sum(self.locked(ctxt, uuid, self._take, row)
                   for uuid in adopted)

    def _adopt(self, ctxt, instance):
        """Have the host hold the node of an instance."""
        if not self._is_here(instance):
            return False
        request = wanted.to_adopt(instance, self._host,
                                  self._report.partition)
        try:
            reservation = self._client.adopt(request)
        except client.NotFound:
            self.tell(instance.uuid, 'no node carries it: delete it')
            return False
        except (client.Conflict, client.Refused) as e:
            self.tell(instance.uuid, f'its node is not adopted: {e}')
            return False
        wanted.warn_of_ignored(request, reservation.get('ignored', ()))
        return True

    def _to_nodes(self, ctxt, ready):
        carriers, done = self._carriers(), 0
        for uuid in ready:
            row = uuid in carriers and mode.row(self._host, carriers[uuid])
            if row:
                done += self.locked(ctxt, uuid, self._take_to_node, row)
            else:
                self.tell(uuid, 'this host has no row of its node: has the '
                                'node left its conductor group or shard?')
        return done

    def _take_to_node(self, ctxt, instance, row):
        """Bring an instance to the row of its node.

        Nova reports all of a node as reserved that carries an instance, and
        Placement would take no allocation of it. It is as before afterwards,
        lest the node be given away while it is cleaned one day.
        """
        before = placement.publish(self._reportclient, row, _without_reserved)
        try:
            return self._take(ctxt, instance, row, dict.fromkeys(before, 1))
        finally:
            placement.publish(self._reportclient, row, lambda _: before)

    def _take(self, ctxt, instance, row, resources=None):
        """Bring an instance to a row.

        :param resources: what it has of the row's provider; None for what it
            has now.
        """
        if not (self._is_here(instance)
                and self.put_on_row(ctxt, instance, row, resources)):
            return False
        with self.recorded(ctxt, instance, 'adopt' if instance.node
                           == self._host else 'switch-back'):
            instance.save(expected_task_state=[None])
        return True

    def _is_here(self, instance):
        return (instance.host == self._host
                and placement.is_at_rest(instance))


def _without_reserved(inventory):
    return {name: {**amounts, 'reserved': 0}
            for name, amounts in inventory.items()}
