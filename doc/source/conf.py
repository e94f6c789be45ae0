# SPDX-License-Identifier: Apache-2.0

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
