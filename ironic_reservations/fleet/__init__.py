# SPDX-License-Identifier: Apache-2.0
"""What the fleet can give: this package reads, and never writes."""
