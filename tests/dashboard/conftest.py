# SPDX-License-Identifier: Apache-2.0
"""A real browser with a real Horizon, Keystone and Ironic.

They are started once, with the fleet of "make dashboard".
"""

import dataclasses
import re

from playwright import sync_api
import pytest

from tests.common import service
from tools import dashboard
from tools import services

#: Milliseconds that the browser waits.
TIMEOUT = 60_000


@pytest.fixture(scope='session')
def cloud(tmp_path_factory):
    with dashboard.cloud(tmp_path_factory.mktemp('cloud'),
                         services.free_port(), services.free_port()) as cloud:
        dashboard.enrol_fleet(cloud)
        yield cloud


@pytest.fixture(scope='session')
def ironic(cloud):
    """Ironic's database."""
    return service.Service(cloud.ironic.url, cloud.ironic.database_url,
                           cloud.ironic.conf_file)


@pytest.fixture(scope='session')
def start_horizon(cloud, tmp_path_factory):
    """A context manager that starts a Horizon."""
    return lambda **kwargs: dashboard.horizon(
        tmp_path_factory.mktemp('horizon'), services.free_port(),
        cloud.auth['auth_url'], **kwargs)


@pytest.fixture(scope='session')
def horizon(start_horizon):
    with start_horizon() as url:
        yield url


@pytest.fixture(scope='session')
def browser():
    path = services.find('chromium')
    assert path, 'chromium is not installed'
    with sync_api.sync_playwright() as playwright:
        # The sandbox does not work for root.
        browser = playwright.chromium.launch(executable_path=path,
                                             args=['--no-sandbox'])
        yield browser
        browser.close()


@dataclasses.dataclass(frozen=True)
class Visitor:
    """A user who is logged in.

    :param page: of the browser.
    :param url: of the panel.
    """

    page: sync_api.Page
    url: str

    def open(self, path=''):
        response = self.page.goto(f'{self.url}/{path}')
        assert response.status == 200, response.text()
        self.check_isolation()
        return self.page

    def follow(self, role, name):
        """Click on a link or a button that leads to another page."""
        with self.page.expect_navigation():
            self.page.get_by_role(role, name=name, exact=True).first.click()
        self.check_isolation()

    def check_isolation(self):
        """Check that a user's text cannot reorder the text around it."""
        assert self.page.evaluate(r"""() => {
            const texts = document.createTreeWalker(document.body,
                                                    NodeFilter.SHOW_TEXT);
            const found = [];
            while (texts.nextNode()) {
                const parent = texts.currentNode.parentElement;
                if (texts.currentNode.data.includes('\u202e')
                        && !parent.closest('bdi, option, textarea'))
                    found.push(parent.outerHTML);
            }
            return found; }""") == []

    @property
    def main(self):
        return self.page.locator('.ir-page')

    def rows(self):
        """Return the texts of a table's rows, by their first line."""
        return {re.split('[\t\n]', text)[0].strip():
                re.sub(r'\s+', ' ', text) for text in
                self.main.locator('tbody tr').all_inner_texts()}


@pytest.fixture(scope='session')
def log_in(cloud, browser):
    """Log a user in at a Horizon, and open the panel.

    :param panel: admin or project.
    :param entrance: path that leads there in the scope that it needs.
    """
    def log_in(url, user, panel, entrance=dashboard.TO_PROJECT):
        page = browser.new_context().new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(f'{url}{entrance}')
        page.get_by_label('User Name').fill(user)
        page.get_by_label('Password').fill(cloud.auth['password'])
        page.keyboard.press('Enter')
        page.wait_for_url(lambda now: '/auth/login' not in now)
        root = url.removesuffix('/auth/login/')
        visitor = Visitor(page, f'{root}/{panel}/baremetal_reservations')
        visitor.open()
        return visitor
    return log_in


@pytest.fixture(scope='session')
def admin(horizon, log_in):
    """A user who sees the whole fleet."""
    return log_in(horizon, 'admin', 'admin', dashboard.TO_FLEET)


@pytest.fixture(scope='session')
def ada(horizon, log_in):
    """A member of team-a."""
    return log_in(horizon, 'ada', 'project')


