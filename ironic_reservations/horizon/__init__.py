# SPDX-License-Identifier: Apache-2.0
"""Panels for Horizon, under Admin and under Project.

They use the SDK, and import nothing of the server. To enable them, copy the
files in ``enabled`` into ``openstack_dashboard/local/enabled``.

* ``pages``: base classes of the pages of both panels.
* ``reservations``, ``groups``, ``pools``, ``notices``, ``history``: the pages
  of these.
* ``views``: the other pages, and the URLs of both panels.
* ``forms``: the forms of the pages.
* ``bars``: draws counts, and puts explanations into words.
* ``hints``: suggests corrections of unknown names in a form.
* ``api``: sends the requests of the logged-in user.
* ``apps``: the application that Django loads.
"""
