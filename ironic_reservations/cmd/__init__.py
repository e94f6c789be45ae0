# SPDX-License-Identifier: Apache-2.0
"""Commands for the hosts that run Ironic's API; all read ironic.conf."""
