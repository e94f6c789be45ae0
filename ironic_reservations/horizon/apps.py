# SPDX-License-Identifier: Apache-2.0
"""The application that Django loads."""

from django import apps


class Config(apps.AppConfig):
    """Has a label of its own, because "horizon" is Horizon itself."""

    name = 'ironic_reservations.horizon'
    label = 'ironic_reservations'
