# SPDX-License-Identifier: Apache-2.0
"""A host that has servers on rows per node becomes one row, and back.

Its servers run on meanwhile, and nothing of Ironic's nodes is written. Three
things tell where an instance is, and they change in this order, because each
needs the one before:

1. The reservation. With it the host's inventory has room for the instance.
2. The allocation in Placement. As long as it is that of the row before, Nova
   must find the instance there: it deletes a row without instances together
   with its allocations.
3. The instance's ``node`` and ``compute_id``.

Each step can be taken again, so a host that was killed between two of them
goes on when it has started again.
"""

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova import utils
from nova.compute import vm_states
from oslo_log import log as logging
import oslo_messaging as messaging

from . import builds
from . import client
from . import mode
from . import placement

LOG = logging.getLogger(__name__)

#: What Nova, Placement and the message bus raise when they do not answer, or
#: answer something else than expected. The next round tries again.
PASSING = (exception.NovaException, ksa_exc.ClientException,
            messaging.MessagingException, ValueError, KeyError)


class Adoption:
    """Brings the instances of a host to the rows that it has now.

    :param host: the name of the compute host.
    :param is_one_row: function without arguments that says whether the host
        is one row; None as long as that is not known.
    :param report: report.Report.
    :param reservations: client.Client.
    :param reportclient: nova.scheduler.client.report.SchedulerReportClient.
    :param carriers: function without arguments that returns the UUIDs of the
        nodes of a host with a row per node, by the UUID of the instance that
        they carry.
    """

    def __init__(self, host, is_one_row, report, reservations, reportclient,
                 carriers):
        self._host = host
        self._is_one_row = is_one_row
        self._report = report
        self._client = reservations
        self._reportclient = reportclient
        self._carriers = carriers

    def go_on(self):
        """One round: bring over what is at rest, and leave the rest.

        An instance that Nova is at work on is left to the next round, and so
        is everything when something does not answer.
        """
        try:
            self._go_on(nova_context.get_admin_context())
        except (client.Failure, *PASSING) as e:
            LOG.warning('The instances of host %s stay where they are for '
                        'now: %s', self._host, e)

    def _go_on(self, ctxt):
        rows = {row.hypervisor_hostname: row for row in mode.rows(self._host)}
        one_row = self._is_one_row()
        if (one_row is None or self._host not in rows
                or one_row and len(rows) == 1):
            return
        # What was interrupted on its way to the one row may have its
        # allocation there already. The other way round the driver finds it.
        there = {} if one_row else placement.read(
            self._reportclient, rows[self._host].uuid) or {}
        waiting = [each for each in objects.InstanceList.get_by_host(
                       ctxt, self._host, expected_attrs=[])
                   if each.node and (each.node != self._host) == one_row
                   or each.uuid in there]
        at_rest = [each for each in waiting if _is_at_rest(each)]
        targets = (self._to_one_row if one_row else self._to_nodes)(
            ctxt, at_rest, rows)
        done = sum(bring(self._take, ctxt, instance_uuid, row)
                   for instance_uuid, row in targets)
        if done:
            LOG.info('Host %s has brought %d instances to %s; %d are left',
                     self._host, done, 'its one row' if one_row
                     else 'the rows of their nodes', len(waiting) - done)

    def _to_one_row(self, ctxt, instances, rows):
        """Have the host hold the nodes of instances, and report them.

        :returns: list of pairs of an instance's UUID and its row.
        """
        if self._report.partition is None:
            self._report.look(None)
        adopted = [each.uuid for each in instances
                   if self._adopt(ctxt, each.uuid)]
        if adopted:
            row = rows[self._host]
            # The room that the adopted need is in a new count alone.
            self._report.look(None, fresh=True)
            placement.publish(self._reportclient, row,
                              self._report.inventory)
        return [(each, rows[self._host]) for each in adopted]

    def _adopt(self, ctxt, instance_uuid):
        instance = objects.Instance.get_by_uuid(
            ctxt, instance_uuid, expected_attrs=['flavor', 'system_metadata'])
        request = builds.request_for(instance, self._host,
                                     self._report.partition)
        del request['expires_in']
        try:
            self._client.adopt(request)
        except client.NotFound:
            LOG.warning('No node carries the instance, so it stays on its '
                        'row per node; delete it.', instance=instance)
            return False
        except (client.Conflict, client.Refused) as e:
            LOG.warning('The node is not adopted now: %s', e,
                        instance=instance)
            return False
        return True

    def _to_nodes(self, ctxt, instances, rows):
        """Have the rows of the nodes of instances offer them room.

        Nova reports all of a node as reserved that carries an instance, and
        Placement then takes no allocation of it. Its next periodic task
        reports that again.

        :returns: list of pairs of an instance's UUID and its row.
        """
        carriers = self._carriers()
        found = [(each.uuid, rows[carriers[each.uuid]]) for each in instances
                 if carriers.get(each.uuid) in rows]
        for _, row in found:
            placement.publish(self._reportclient, row, _without_reserved)
        return found

    def _take(self, ctxt, instance, row):
        """Bring an instance to a row; the caller has its lock.

        :returns: whether it was done.
        """
        if instance.host != self._host or not _is_at_rest(instance):
            return False
        if not placement.allocate(self._reportclient, ctxt, instance,
                                  row.uuid):
            LOG.warning('Placement has no room for the instance on %s yet',
                        row.hypervisor_hostname, instance=instance)
            return False
        instance.node, instance.compute_id = row.hypervisor_hostname, row.id
        instance.save(expected_task_state=[None])
        return True


def bring(take, ctxt, instance_uuid, row):
    """Bring an instance to a row, under Nova's own lock of the instance.

    :param take: function of the context, the instance as it is then, and the
        row. It returns whether it was done.
    :param row: nova.objects.ComputeNode.
    :returns: what ``take`` returns; False when something does not answer.
    """
    @utils.synchronized(instance_uuid)
    def locked():
        return take(ctxt, objects.Instance.get_by_uuid(
            ctxt, instance_uuid, expected_attrs=['flavor']), row)

    try:
        return locked()
    except exception.InstanceNotFound:
        return False  # It has just been deleted.
    except (client.Failure, *PASSING) as e:
        LOG.warning('Instance %s stays where it is for now: %s',
                    instance_uuid, e)
        return False


def _is_at_rest(instance):
    return (instance.task_state is None
            and instance.vm_state != vm_states.BUILDING)


def _without_reserved(inventory):
    return {name: {**amounts, 'reserved': 0}
            for name, amounts in inventory.items()}
