# SPDX-License-Identifier: Apache-2.0
"""Our table, the few columns of Ironic's that we read, and the SQL.

Nothing here opens a transaction: ``reservations`` does.
"""
