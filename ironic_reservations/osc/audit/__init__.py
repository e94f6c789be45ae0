# SPDX-License-Identifier: Apache-2.0
"""The audit of what Nova, Placement, the reservations and Ironic say.

* ``cloud``: the values, as the four services say them.
* ``kinds``: the disagreements that there may be; pure functions of a Cloud.
* ``reader``: reads a Cloud over the public APIs.
* ``advice``: the sentence on what to do about each.
* ``repairs``: what ``--repair`` mends.
* ``command``: the command.
"""
