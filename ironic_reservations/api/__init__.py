# SPDX-License-Identifier: Apache-2.0
"""HTTP: ``app`` is the stack, ``controllers`` the calls."""
