# SPDX-License-Identifier: Apache-2.0

"""The Nova virt driver's place: ``nova.virt.ironic_reservations``.

Nova loads drivers from below ``nova.virt`` only. The driver itself is not
part of this release.
"""
