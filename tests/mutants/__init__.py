# SPDX-License-Identifier: Apache-2.0
"""Breaks of the code on purpose, and the tests that notice each of them."""
