# SPDX-License-Identifier: Apache-2.0
"""Our tables, the few columns of Ironic's that we read, and the SQL.

Nothing here opens a transaction: ``reservations`` does, and ``fleet`` for the
count that the workers share.
"""
