# SPDX-License-Identifier: Apache-2.0
"""Finds the host and the node of an instance, for Nova's Ironic driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import vm_states
from oslo_log import log as logging
import wrapt

from . import client
from . import fence
from . import mode

LOG = logging.getLogger(__name__)


# wrapt 1.14 has no generic one.
class OnNode(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A view of an instance whose ``node`` is the UUID of its Ironic node.

    The parent's methods read the node there. The instance itself must keep
    the name of its compute node.
    """

    def __init__(self, instance: objects.Instance, node_uuid: str | None):
        super().__init__(instance)
        self._self_node = node_uuid

    @property
    def node(self) -> str | None:
        return self._self_node

    def __getitem__(self, key: str) -> Any:
        return self.node if key == 'node' else self.__wrapped__[key]

    def get(self, key: str, *default: Any) -> Any:
        return (self.node if key == 'node'
                else self.__wrapped__.get(key, *default))


class Spawning(OnNode):
    """A view of an instance whose node ``Reserved.spawn`` cleans after errors.

    The parent's own attempt to clean it could replace the error by another.
    """


class Unheld(OnNode):
    """A view of an instance for which this host holds no node.

    If a node carries the instance nevertheless, it must not be changed.
    """


def check_is_held(instance: objects.Instance, node: Any) -> None:
    """Check that the node that carries an instance may be torn down.

    A node without a reservation carries an instance only after a database was
    restored or edited manually. Nova must not delete an instance that runs
    there.

    :raises: NovaException.
    """
    if isinstance(instance, Unheld):
        LOG.error('Node %s carries this instance, but is not reserved: '
                  'undeploy it.', node.id, instance=instance)
        raise exception.NovaException(
            f'The node of instance {instance.uuid} is not reserved.')


class Ownership:
    """Finds out which instances belong to this host, and their nodes.

    :param host: the name of the compute host.
    """

    def __init__(self, host: str, reservations: client.Client,
                 host_mode: mode.Mode, host_fence: fence.Fence):
        self._host = host
        self._client = reservations
        self._mode = host_mode
        self._fence = host_fence

    def is_ours(self, instance: objects.Instance) -> bool:
        """Return whether an instance is on the one compute node of a host.

        Its node is reserved then. An instance without a node is being built,
        on the compute node that this host now builds on. An instance that
        another host has taken over may already be on that host's.

        :raises: VirtDriverNotReady while the mode of the host is undecided.
        """
        if not instance.node:
            return self._mode.one_row
        return instance.node in (self._host, instance.host)

    def is_reserved(self, instance: objects.Instance) -> bool:
        """Return whether a reservation decides where an instance is.

        In one-row mode, this includes instances on the compute nodes of
        Ironic nodes: they may have been adopted.

        :raises: see ``is_ours``.
        """
        return bool(self._mode.decision) or self.is_ours(instance)

    def _get_reservation(
            self, instance: objects.Instance) -> client.Reservation | None:
        """Return the reservation of an instance; None without one.

        :raises: InstanceNotFound if another host holds it; client.Failure.
        """
        reservation = self._client.get(instance.uuid)
        if reservation and reservation['host'] != self._host:
            LOG.warning('Ignored the instance: host %s holds node %s for it.',
                        reservation['host'], reservation['node_uuid'],
                        instance=instance)
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return reservation

    def block_if_lost(
            self, instance: objects.Instance,
            is_complete: Callable[[objects.Instance], bool]) -> None:
        """Block this thread if another host or process has the instance.

        See fence.Fence.block_if_lost. Returns if Ironic does not respond.

        :param is_complete: returns whether another process of this host has
            already completed the operation.
        """
        try:
            reservation = self._fence.block_if_lost(instance)
        except client.Failure as e:
            LOG.warning('Could not check which host has the instance: %s', e,
                        instance=instance)
        else:
            if reservation and is_complete(instance):
                self._fence.block(instance,
                                  f'another process of {self._host}')

    def on_node(self, instance: objects.Instance,
                building: bool = False) -> objects.Instance:
        """Return the view of an instance that the parent's methods need.

        :param building: whether to block this thread if another host has the
            instance.
        :raises: InstanceNotFound if this host holds no node for it;
            NovaException if Ironic does not respond.
        """
        if isinstance(instance, OnNode):
            return instance
        find = self._fence.block_if_lost if building else self._get_reservation
        try:
            reservation = find(instance)
        except client.Failure as e:
            LOG.error('Could not find the node: %s', e, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} could not be found.')
        view = self.view(instance, reservation)
        if isinstance(view, Unheld):
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return view

    def view(self, instance: objects.Instance,
             reservation: client.Reservation | None) -> objects.Instance:
        """Return the view of an instance that the parent's methods need."""
        if reservation:
            return OnNode(instance, reservation['node_uuid'])
        if self.is_ours(instance):
            return Unheld(instance, None)
        return instance  # It has not been migrated to one-row mode yet.

    def may_destroy(self, instance: objects.Instance,
                    reservation: client.Reservation | None,
                    starting: bool) -> bool:
        """Return whether this host may destroy an instance.

        Nova's request may have been queued while the host was down, and
        another host may have taken over the instance since.

        :param starting: whether Nova is still initializing the instances that
            it found when it started.
        :returns: False to skip the instance without an error. While the host
            starts, that is an instance that was not deleted, because before
            release 34 Nova destroys the instances of unfinished evacuations
            then. At any time it is an instance that another host is building,
            because after an error Nova would abort that build.
        :raises: InstancePowerOffFailure if another host has the instance,
            because only after this error does Nova keep the instance's ports.
        """
        try:
            current = objects.Instance.get_by_uuid(
                nova_context.get_admin_context(read_deleted='yes'),
                instance.uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            current = instance  # It was deleted, and is archived.
        deleting = (current.deleted
                    or current.task_state == task_states.DELETING)
        if starting and not deleting:
            LOG.warning('Did not destroy the instance, because it is not '
                        'deleted.', instance=instance)
            return False
        # A deleted instance keeps the name of the host that was down, because
        # a takeover does not change it. So only its reservation counts.
        hosts = [reservation and reservation['host']]
        if not (current.deleted and reservation):
            hosts.insert(0, current.host)
        for host in hosts:
            if host not in (None, self._host):
                LOG.warning('Ignored the instance, because it is now on host '
                            '%s.', host, instance=instance)
                if current.vm_state == vm_states.BUILDING and not deleting:
                    return False
                raise exception.InstancePowerOffFailure(
                    reason=f'it is now on host {host}')
        return True
