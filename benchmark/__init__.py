# SPDX-License-Identifier: Apache-2.0
"""What things cost, printed for people; nothing here passes or fails."""
