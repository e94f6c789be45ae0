# SPDX-License-Identifier: Apache-2.0
"""Modules that several test suites share; a suite imports no other suite."""
