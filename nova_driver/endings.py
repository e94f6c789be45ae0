# SPDX-License-Identifier: Apache-2.0
"""Repeats the last steps of Nova's builds, rebuilds and deletions.

It does this for operations that another process began. Each method repeats
the steps of Nova's compute manager after a method of the driver has returned
or raised. The message of the request is lost, so these methods read its
content from Nova's database.
"""

from __future__ import annotations

from collections.abc import Callable
import sys
from types import TracebackType
from typing import TYPE_CHECKING
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import instance_actions
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova.objects import fields
from oslo_log import log as logging

from . import conf
from . import node_faults

if TYPE_CHECKING:
    from nova.compute import manager as compute_manager

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: The private methods and attributes of Nova's ComputeManager that the driver
#: uses: the release in which they were read, and a method of Nova that uses
#: them in the same way. tests/nova/test_seams.py compares them with all
#: releases that the driver runs on.
PRIVATE = {
    '_build_failed': ('34.0.0', 'build_and_run_instance'),
    '_build_succeeded': ('34.0.0', 'build_and_run_instance'),
    '_cleanup_allocated_networks': ('34.0.0', '_do_build_and_run_instance'),
    '_cleanup_volumes': ('34.0.0', '_do_build_and_run_instance'),
    '_delete_instance': ('34.0.0', '_init_instance'),
    '_do_build_and_run_instance': ('34.0.0', 'build_and_run_instance'),
    '_init_instance': ('34.0.0', 'init_host'),
    '_nil_out_instance_obj_host_and_node': (
        '34.0.0', '_do_build_and_run_instance'),
    '_notify_about_instance_usage': ('34.0.0', '_build_and_run_instance'),
    '_notify_instance_rebuild_error': ('34.0.0', 'rebuild_instance'),
    '_set_instance_obj_error_state': ('34.0.0', '_init_instance'),
    '_shutdown_instance': ('34.0.0', '_build_resources'),
    '_update_instance_after_spawn': ('34.0.0', '_build_and_run_instance'),
    '_update_scheduler_instance_info': ('34.0.0', '_build_and_run_instance'),
    # Attributes, without a signature.
    '_in_progress_tasks': ('34.0.0', '_wait_for_in_progress_tasks'),
    '_shutdown_in_progress': ('34.0.0', 'periodic_tasks'),
}

#: Key of an instance's system metadata during a rebuild: the time at which the
#: provision state of its node changed last before the rebuild.
REBUILT_FROM = 'reservations_rebuilt_from'

#: Fields of an instance that must be loaded for the methods below.
LOADED = ['flavor', 'info_cache', 'metadata', 'numa_topology', 'services',
          'system_metadata']

# The user's actions and their events, which Nova's decorators would end.
_BUILD = instance_actions.CREATE, 'compute__do_build_and_run_instance'
_REBUILD = instance_actions.REBUILD, 'compute_rebuild_instance'
_DELETION = instance_actions.DELETE, 'compute_terminate_instance'


class Endings:
    """Ends the operations of a host's instances.

    The caller has Nova's lock of the instance, and has read the instance
    under it, with LOADED. Each docstring names the method of Nova's
    ComputeManager that it mirrors.

    :param host: the name of the compute host.
    """

    def __init__(self, host: str, manager: compute_manager.ComputeManager):
        self._host = host
        self._manager = manager

    def finish_build(self, instance: objects.Instance) -> None:
        """End a build whose node was deployed: _build_and_run_instance."""
        request = _Request(instance, _BUILD)
        network_info = instance.get_network_info()
        instance.system_metadata.pop('network_allocated', None)
        node_faults.forget(instance)
        _set_access_ips(instance, network_info)
        self._manager._update_instance_after_spawn(instance)
        instance.save(expected_task_state=task_states.SPAWNING)
        self._manager._update_scheduler_instance_info(request.context,
                                                      instance)
        self._manager._notify_about_instance_usage(
            request.context, instance, 'create.end',
            extra_usage_info={'message': 'Success'},
            network_info=network_info)
        compute_utils.notify_about_instance_create(
            request.context, instance, self._host,
            phase=fields.NotificationPhase.END, bdms=request.bdms)
        self._manager._build_succeeded(self._host)
        request.finish()

    def fail_build(self, instance: objects.Instance,
                   reason: str | None) -> None:
        """End a failed build: _do_build_and_run_instance.

        Another host cannot retry it, because the message of the request is
        lost. After an error here, the next attempt can start over.
        """
        request = _Request(instance, _BUILD)
        self._manager._shutdown_instance(
            request.context, instance, request.bdms,
            try_deallocate_networks=False)
        self._manager._cleanup_allocated_networks(request.context, instance,
                                                  None)
        self._manager._cleanup_volumes(
            request.context, instance, request.bdms, raise_exc=False,
            detach=False)
        error = request.fail(reason)
        self._manager._notify_about_instance_usage(
            request.context, instance, 'create.error', fault=error)
        compute_utils.notify_about_instance_create(
            request.context, instance, self._host,
            phase=fields.NotificationPhase.ERROR, exception=error,
            bdms=request.bdms)
        # Before Nova unsets the instance's host.
        self._manager.reportclient.delete_allocation_for_instance(
            request.context, instance.uuid, force=True)
        self._manager._nil_out_instance_obj_host_and_node(instance)
        self._manager._set_instance_obj_error_state(instance,
                                                    clean_task_state=True)
        self._manager._build_failed(self._host)
        request.finish()

    def finish_rebuild(self, instance: objects.Instance) -> Callable[[], None]:
        """End a rebuild whose node was deployed: _do_rebuild_instance.

        :returns: a function to call after releasing Nova's lock of the
            instance.
        """
        request = _Request(instance, _REBUILD)
        was_stopped = instance.vm_state == vm_states.STOPPED
        instance.system_metadata.pop(REBUILT_FROM, None)
        self._manager._update_instance_after_spawn(instance)
        instance.save(expected_task_state=[task_states.REBUILD_SPAWNING])
        if was_stopped:
            instance.task_state = task_states.POWERING_OFF
            instance.progress = 0
            instance.save()

        def stop_and_notify() -> None:
            if was_stopped:
                # This acquires the lock.
                self._manager.stop_instance(request.context, instance, False)
            self._manager._update_scheduler_instance_info(request.context,
                                                          instance)
            self._manager._notify_about_instance_usage(
                request.context, instance, 'rebuild.end',
                network_info=instance.get_network_info())
            compute_utils.notify_about_instance_rebuild(
                request.context, instance, self._host,
                phase=fields.NotificationPhase.END, bdms=request.bdms)
            request.finish()

        return stop_and_notify

    def fail_rebuild(self, instance: objects.Instance,
                     reason: str | None) -> None:
        """End a failed rebuild: rebuild_instance.

        The instance keeps its machine and its allocation.
        """
        request = _Request(instance, _REBUILD)
        error = request.fail(reason)
        self._manager._notify_instance_rebuild_error(
            request.context, instance, error, request.bdms)
        instance.system_metadata.pop(REBUILT_FROM, None)
        self._manager._set_instance_obj_error_state(instance,
                                                    clean_task_state=True)
        request.finish()

    def continue_deletion(self, instance: objects.Instance) -> None:
        """Continue a deletion: _init_instance.

        :raises: any error. The instance is then in ERROR, and remains to be
            deleted.
        """
        request = _Request(instance, _DELETION)
        try:
            self._manager._delete_instance(request.context, instance,
                                           request.bdms)
        except Exception:
            self._manager._set_instance_obj_error_state(instance)
            raise
        request.finish()

    def fail_queued_build(self, instance: objects.Instance,
                          reason: str) -> None:
        """Fail a build that no host has begun."""
        request = _Request(instance, _BUILD)
        request.fail(reason)
        self._manager.reportclient.delete_allocation_for_instance(
            request.context, instance.uuid, force=True)
        self._manager._set_instance_obj_error_state(instance,
                                                    clean_task_state=True)


class _Request:
    """A user's request in Nova's database.

    :param instance: from then on it is saved in the context of that user.
    :param names: of the request's action, and of its event.
    :ivar context: the context of the request, without a token: with an
        administrator's, Nova would end the event of another request.
    :ivar bdms: the block devices of the instance.
    """

    def __init__(self, instance: objects.Instance, names: tuple[str, str]):
        self._instance = instance
        self._error: exception.NovaException | None = None
        self._trace: TracebackType | None = None
        self.context = nova_context.get_admin_context()
        # Newest first.
        action = next((action for action in
                       objects.InstanceActionList.get_by_instance_uuid(
                           self.context, instance.uuid)
                       if action.action == names[0]), None)
        self._event = action and names[1]
        if action:
            self.context = nova_context.RequestContext(
                user_id=action.user_id, project_id=action.project_id,
                request_id=action.request_id, is_admin=True, overwrite=False)
        instance._context = self.context
        self.bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
            self.context, instance.uuid)

    def fail(self, reason: str | None) -> exception.NovaException:
        """Store the reason of the failure for the user, and return it."""
        try:
            raise exception.BuildAbortException(
                instance_uuid=self._instance.uuid, reason=reason)
        except exception.BuildAbortException as e:
            LOG.error('The operation failed: %s', e, instance=self._instance)
            self._error, self._trace = e, e.__traceback__
            compute_utils.add_instance_fault_from_exc(
                self.context, self._instance, e, sys.exc_info())
            return e

    def finish(self) -> None:
        """End the event of the request."""
        if self._event is None:
            return
        try:
            objects.InstanceActionEvent.event_finish_with_failure(
                self.context, self._instance.uuid, self._event,
                exc_val=self._error, exc_tb=self._trace, want_result=False)
        except exception.NotFound as e:
            LOG.debug('No event to end: %s', e, instance=self._instance)


def _set_access_ips(instance: objects.Instance, network_info: Any) -> None:
    """Set the addresses of [DEFAULT] default_access_ip_network_name."""
    label = CONF.default_access_ip_network_name
    if not label or instance.access_ip_v4 or instance.access_ip_v6:
        return
    for vif in network_info:
        if vif['network']['label'] == label:
            for ip in vif.fixed_ips():
                name = f'access_ip_v{ip["version"]}'
                if not getattr(instance, name):
                    setattr(instance, name, ip['address'])
            return
