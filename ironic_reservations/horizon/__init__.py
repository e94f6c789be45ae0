# SPDX-License-Identifier: Apache-2.0
"""Panels for Horizon, under Admin and under Project.

They use the SDK, and import nothing of the server. To enable them, copy the
files in ``enabled`` into ``openstack_dashboard/local/enabled``.
"""
