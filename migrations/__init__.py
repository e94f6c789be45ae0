# SPDX-License-Identifier: Apache-2.0
"""The Alembic migrations of our tables in Ironic's database."""
