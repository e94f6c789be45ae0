# SPDX-License-Identifier: Apache-2.0

extensions = ['openstackdocstheme', 'reno.sphinxext']

project = 'ironic-reservations'
copyright = 'ironic-reservations contributors'

openstackdocs_auto_name = False
openstackdocs_auto_version = False

html_theme = 'openstackdocs'
