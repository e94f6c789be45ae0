# SPDX-License-Identifier: Apache-2.0
"""The application that Django loads."""

from django import apps


class Config(apps.AppConfig):
    """Sets a label, because "horizon" is that of Horizon itself."""

    name = 'ironic_reservations.horizon'
    label = 'ironic_reservations'
