# SPDX-License-Identifier: Apache-2.0
"""Whose an instance is, and the view of it that Nova's Ironic driver needs."""

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import vm_states
from oslo_log import log as logging
import wrapt

from . import client

LOG = logging.getLogger(__name__)


class OnNode(wrapt.ObjectProxy):
    """A view of an instance whose ``node`` is the UUID of its Ironic node.

    The parent's methods read the node there. The instance itself must keep
    the name of its row.
    """

    def __init__(self, instance, node_uuid):
        super().__init__(instance)
        self._self_node = node_uuid

    @property
    def node(self):
        return self._self_node

    def get(self, key, *default):
        return (self.node if key == 'node'
                else self.__wrapped__.get(key, *default))


class Unheld(OnNode):
    """A view of an instance for which this host holds no node.

    Nothing may be done to a node that carries the instance nevertheless.
    """


class Ownership:
    """Says which instances are this host's, and on which nodes they are.

    :param host: the name of the compute host.
    :param reservations: a client.Client.
    :param mode: a mode.Mode.
    :param fence: a fence.Fence.
    """

    def __init__(self, host, reservations, mode, fence):
        self._host = host
        self._client = reservations
        self._mode = mode
        self._fence = fence

    def is_ours(self, instance):
        """Return whether an instance is on the one row of a host.

        Its node is reserved then. An instance without a node is being built,
        and goes to the row that this host builds on now. An instance that
        another host has taken over may be on that host's row already.

        :raises: VirtDriverNotReady while the host cannot decide whether it is
            one row.
        """
        if not instance.node:
            return self._mode.one_row
        return instance.node in (self._host, instance.host)

    def _held(self, instance):
        """Return the reservation of an instance; None without one.

        :raises: InstanceNotFound if another host holds it; client.Failure.
        """
        held = self._client.get(instance.uuid)
        if held and held['host'] != self._host:
            LOG.warning('Host %s holds node %s for this instance; it is left '
                        'alone.', held['host'], held['node_uuid'],
                        instance=instance)
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return held

    def stay_if_anothers(self, instance, is_ended):
        """See fence.Fence.stay_if_anothers; go on where it is not known.

        :param is_ended: function of the instance that says whether another
            process of this host has ended what this one does to it.
        """
        try:
            held = self._fence.stay_if_anothers(instance)
        except client.Failure as e:
            LOG.warning('Whose the instance is now is not known: %s', e,
                        instance=instance)
        else:
            if held and is_ended(instance):
                self._fence.stay(instance, f'another process of {self._host}')

    def on_node(self, instance, building=False):
        """Return the view of an instance that the parent's methods need.

        :param building: whether never to return if another host has it.
        :raises: InstanceNotFound if this host holds no node for it;
            NovaException if Ironic does not tell.
        """
        if isinstance(instance, OnNode):
            return instance
        if not self.is_ours(instance) and not self._mode.known:
            return instance
        look = self._fence.stay_if_anothers if building else self._held
        try:
            held = look(instance)
        except client.Failure as e:
            LOG.error('The node is not known: %s', e, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} is not known now.')
        view = self.view(instance, held)
        if isinstance(view, Unheld):
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return view

    def view(self, instance, held):
        """Return the view of an instance that the parent's methods need.

        :param held: the reservation of the instance, or None.
        """
        if held:
            return OnNode(instance, held['node_uuid'])
        if self.is_ours(instance):
            return Unheld(instance, None)
        return instance  # It is on a row per node, and not adopted yet.

    def may_destroy(self, instance, held, starting):
        """Return whether this host may destroy an instance.

        Nova's request may have been queued while the host was down, and
        another host may have the instance since.

        :param held: the reservation of the instance, or None.
        :param starting: whether Nova still initializes the instances that it
            has found when it started.
        :returns: False if the instance is left alone without an error. While
            the host starts, this is an instance that nobody has deleted,
            because before release 34 Nova destroys then what an unfinished
            evacuation was to take from the host. At any time it is an
            instance that another host is building, because after an error
            Nova would end that build, too.
        :raises: InstancePowerOffFailure if another host has the instance. It
            is the only error after which Nova leaves the instance its ports.
        """
        try:
            known = objects.Instance.get_by_uuid(
                nova_context.get_admin_context(read_deleted='yes'),
                instance.uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            known = instance  # It was deleted, and is archived.
        deleting = known.deleted or known.task_state == task_states.DELETING
        if starting and not deleting:
            LOG.warning('Nobody has deleted the instance, and it is not '
                        'destroyed.', instance=instance)
            return False
        # A deleted instance still has the name of the host that was down,
        # because a takeover does not bring it to the host that was given its
        # machine. So only the holder of the machine counts.
        hosts = ([held['host']] if known.deleted and held
                 else [known.host, held and held['host']])
        for host in hosts:
            if host not in (None, self._host):
                LOG.warning('The instance is with host %s now, and is left '
                            'alone.', host, instance=instance)
                if known.vm_state == vm_states.BUILDING and not deleting:
                    return False
                raise exception.InstancePowerOffFailure(
                    reason=f'it is with host {host} now')
        return True
