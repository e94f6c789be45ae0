# SPDX-License-Identifier: Apache-2.0
"""A real Keystone, and what tests make in it."""

from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3
import openstack

TOTAL = 'baremetal_reservations'
REGION = 'RegionOne'


class Keystone:
    """Its administrator; the projects a, b and service are there.

    :param auth: of services.keystone().
    :param url: Ironic's.
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
        """A connection of the administrator, who finds what is there now."""
        return openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={**self.auth, 'system_scope': 'all'})

    def user(self, name, role, on):
        """Create a user with a role; the user's id.

        :param on: a project's name, system, domain or None; of token(), too.
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

    def register(self, limits, **of_projects):
        """Have these limits and no others.

        :param limits: of all projects,
        :param of_projects: and of some: register({TOTAL: 1}, a={TOTAL: 2}).
        """
        identity = self.identity
        for each in identity.limits():
            identity.delete_limit(each)
        for each in identity.registered_limits():
            identity.delete_registered_limit(each)
        where = {'service_id': self._service, 'region_id': REGION}
        for name, number in limits.items():
            identity.create_registered_limit(
                resource_name=name, default_limit=number, **where)
        for project, theirs in of_projects.items():
            for name, number in theirs.items():
                identity.create_limit(
                    project_id=self.projects[project], resource_name=name,
                    resource_limit=number, **where)


def config(auth):
    """What an operator adds to ironic.conf, for tokens and for limits."""
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
