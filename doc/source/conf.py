# SPDX-License-Identifier: Apache-2.0

from docutils.parsers import rst

from ironic_reservations.osc.audit import kinds

extensions = [
    'sphinx.ext.autodoc',
    'cliff.sphinxext',
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
]

project = 'ironic-reservations'
copyright = 'ironic-reservations contributors'
exclude_patterns = []

openstackdocs_auto_name = False
openstackdocs_auto_version = False

html_theme = 'openstackdocs'
pygments_style = 'native'

autoprogram_cliff_application = 'openstack'

# The theme centres what is in a table, and prose is hard to read so.
html_static_path = ['_static']
html_css_files = ['tables.css']

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


def setup(app):
    for name in TABLES:
        app.add_directive(name, Table)
