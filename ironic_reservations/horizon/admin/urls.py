# SPDX-License-Identifier: Apache-2.0
"""The pages of the panel under Admin."""

from ironic_reservations.horizon import views

urlpatterns = views.make_urls(is_admin=True)
