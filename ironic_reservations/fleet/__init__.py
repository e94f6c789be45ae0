# SPDX-License-Identifier: Apache-2.0
"""Counts and searches the nodes of the fleet. It never writes."""
