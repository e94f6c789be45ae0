# SPDX-License-Identifier: Apache-2.0

from docutils import nodes
from docutils.parsers import rst
import pbr.version

from ironic_reservations.osc.audit import kinds

extensions = [
    'sphinx.ext.autodoc',
    'cliff.sphinxext',
    'os_api_ref',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
    'reno.sphinxext',
]

project = 'ironic-reservations'
copyright = 'ironic-reservations contributors'
release = pbr.version.VersionInfo(project).version_string()
# Included by another page.
exclude_patterns = ['api-ref/*.inc']

# Most blocks after "::" are commands.
highlight_language = 'console'

html_theme = 'furo'
html_title = f'{project} {release}'
html_static_path = ['_static']
html_css_files = ['site.css']
html_copy_source = False

autoprogram_cliff_application = 'openstack'

man_pages = [
    ('reference/cli', project, 'reserve bare metal nodes', [], 1)]

#: Tables that are generated from the classes of the audit's kinds.
TABLES = {
    'audit-kinds': [
        ('Kind', 'What it means', 'What to do'),
        *((f'``{kind.name}``', kind.__doc__, kind.instructions)
          for kind in kinds.KINDS.values())],
    'audit-repairs': [
        ('Kind', 'What is repaired', 'What is not, and why'),
        *((f'``{kind.name}``', kind.repair.__doc__, kind.exclusions)
          for kind in kinds.KINDS.values() if kind.repair)],
}


class Table(rst.Directive):

    def run(self):
        lines = ['.. list-table::', '   :header-rows: 1',
                 '   :widths: 18 41 41', '']
        for row in TABLES[self.name]:
            lines += [f'   {bullet} - {" ".join(cell.split())}'
                      for bullet, cell in zip('*  ', row, strict=True)]
        self.state_machine.insert_input([*lines, ''], __file__)
        return []


def name_unreleased(app, doctree):
    """Retitle the notes that reno lists under 0.0.0.

    Reno does so as long as the repository has no tag, and then ignores
    ``unreleased_version_title``.
    """
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            title[:] = [nodes.Text(release)]


def setup(app):
    for name in TABLES:
        app.add_directive(name, Table)
    # Before Sphinx collects the titles for the table of contents.
    app.connect('doctree-read', name_unreleased, priority=100)
