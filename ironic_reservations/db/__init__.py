# SPDX-License-Identifier: Apache-2.0
"""Our tables, the columns of Ironic's tables that we read, and the SQL.

Transactions that write are opened by the package ``reservations`` and the
health check only.
"""
