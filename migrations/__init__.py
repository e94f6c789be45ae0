# SPDX-License-Identifier: Apache-2.0
"""Alembic's tree for our tables, inside Ironic's database."""
