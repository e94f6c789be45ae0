# SPDX-License-Identifier: Apache-2.0
"""A real Keystone with projects, users and limits."""

from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3
import openstack

TOTAL = 'baremetal_reservations'
REGION = 'RegionOne'


class Keystone:
    """The administrator of a Keystone with the projects a, b and service.

    :param auth: see services.keystone().
    :param url: URL of Ironic.
    """

    def __init__(self, auth, url):
        self.auth = auth
        self.identity = identity = self.admin().identity
        self._service = identity.create_service(type='baremetal',
                                                name='ironic').id
        identity.create_endpoint(service_id=self._service, url=url,
                                 interface='public', region_id=REGION)
        self.projects = {name: identity.create_project(
            name=name, domain_id='default').id
            for name in ('a', 'b', 'service')}
        self._roles = {role.name: role for role in identity.roles()}

    def admin(self):
        """Return a new connection of the administrator."""
        return openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={**self.auth, 'system_scope': 'all'})

    def user(self, name, role, on):
        """Create a user with a role, and return the user's ID.

        :param on: name of a project, system or domain; in token() also None.
        """
        user = self.identity.create_user(
            name=name, password=self.auth['password'], domain_id='default')
        role = self._roles[role]
        if on in self.projects:
            self.identity.assign_project_role_to_user(
                self.projects[on], user, role)
        elif on == 'system':
            self.identity.assign_system_role_to_user(user, role, 'all')
        else:
            self.identity.assign_domain_role_to_user('default', user, role)
        return user.id

    def token(self, name, on):
        scope = {'system': {'system_scope': 'all'},
                 'domain': {'domain_id': 'default'},
                 None: {'unscoped': True}}.get(on)
        return ks_session.Session(v3.Password(
            **{**self.auth, 'username': name},
            **scope or {'project_id': self.projects[on]})).get_token()

    def register(self, limits, **project_limits):
        """Replace all limits: register({TOTAL: 1}, a={TOTAL: 2}).

        :param limits: for all projects.
        :param project_limits: for some projects.
        """
        identity = self.identity
        for limit in identity.limits():
            identity.delete_limit(limit)
        for limit in identity.registered_limits():
            identity.delete_registered_limit(limit)
        where = {'service_id': self._service, 'region_id': REGION}
        for name, number in limits.items():
            identity.create_registered_limit(
                resource_name=name, default_limit=number, **where)
        for project, limits in project_limits.items():
            for name, number in limits.items():
                identity.create_limit(
                    project_id=self.projects[project], resource_name=name,
                    resource_limit=number, **where)


def config(auth):
    """Return the options of ironic.conf for tokens and limits."""
    return {
        'DEFAULT': {'auth_strategy': 'keystone'},
        'keystone_authtoken': {
            'auth_type': 'password', 'www_authenticate_uri': auth['auth_url'],
            'project_name': 'admin', 'project_domain_id': 'default', **auth},
        'reservations': {'quota': 'unified_limits'},
        'oslo_limit': {
            'auth_type': 'password', **auth, 'username': 'ironic-quota',
            'system_scope': 'all', 'endpoint_service_type': 'baremetal',
            'endpoint_region_name': REGION}}
