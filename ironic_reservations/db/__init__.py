# SPDX-License-Identifier: Apache-2.0
"""Our tables, the few columns of Ironic's that we read, and the SQL.

No module here opens a transaction that writes: the package ``reservations``
does, and the health check.
"""
