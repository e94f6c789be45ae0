# SPDX-License-Identifier: Apache-2.0
"""Alembic's tree for our table, inside Ironic's database."""
