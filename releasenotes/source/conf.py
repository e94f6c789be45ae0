# SPDX-License-Identifier: Apache-2.0

from docutils import nodes

extensions = ['openstackdocstheme', 'reno.sphinxext']

project = 'ironic-reservations'
copyright = 'ironic-reservations contributors'

openstackdocs_auto_name = False
openstackdocs_auto_version = False

html_theme = 'openstackdocs'


def name_unreleased(app, doctree):
    """Retitle the notes that reno lists under 0.0.0.

    Reno does so as long as the repository has no tag, and then ignores
    ``unreleased_version_title``.
    """
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            title[:] = [nodes.Text('In development')]


def setup(app):
    # Before Sphinx collects the titles for the table of contents.
    app.connect('doctree-read', name_unreleased, priority=100)
