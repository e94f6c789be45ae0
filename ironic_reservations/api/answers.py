# SPDX-License-Identifier: Apache-2.0
"""What the calls share about responses: JSON, URLs, length and pages."""

import datetime
import json
import urllib.parse

import pecan
from wsme import types as wtypes
from wsme.rest import json as wsme_json

from ironic_reservations import conf

#: The most bytes of what there may be any number of in an answer. There is
#: room for the rest of it, such as a link to the next page, within 4 MiB.
MAX_PAGE = 2 ** 22 - 2 ** 16


def url(path=''):
    """Return a URL of ours as the client knows it.

    Ironic's rules: what a proxy has forwarded if Ironic is told to believe
    it, else ``[api] public_endpoint``, else what the client has asked.

    :param path: what stands behind the URL of all reservations.
    """
    request = pecan.request
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        base = request.application_url
    else:
        base = conf.CONF.api.public_endpoint or request.host_url
    return f'{base.rstrip("/")}/v1/reservations{path}'


def say_created(created, location):
    """Say in the answer what has been made, and where it is.

    :param created: whether this very request has made it.
    :param location: its URL.
    """
    pecan.response.status = 201 if created else 200
    pecan.response.location = location


def no_content():
    """Say in the answer that the work is done and there is nothing to show."""
    pecan.response.status = 204


class Json(wtypes.UserType):
    """Any JSON value, shown as it is."""

    basetype = str
    name = 'json'


class Time(wtypes.UserType):
    """A time of the database, which is UTC without a time zone."""

    basetype = str
    name = 'time'

    def tobasetype(self, value):
        return value.replace(tzinfo=datetime.UTC).isoformat()


def present(datatype, values):
    """Return values as the JSON that a WSME type declares, a dict.

    :param datatype: a class with WSME attributes.
    :param values: dict of the attributes to show, by name.
    """
    return {attribute.name: wsme_json.tojson(
                attribute.datatype, values[attribute.name])
            for attribute in wtypes.list_attributes(datatype)
            if attribute.name in values}


def ignored(spec):
    """Return which extra specs were not compared with nodes, a dict.

    :param spec: request_spec.RequestSpec.
    """
    return {'ignored': spec.ignored} if spec.ignored else {}


def limit(query):
    """Take the length of a page out of a query."""
    return min(int(query.pop('limit', conf.CONF.api.max_limit)),
               conf.CONF.api.max_limit)


def page(name, found, limit, present, make_marker, path=''):
    """Return a page of a list as JSON, a dict.

    :param name: of the list.
    :param found: what the page begins with, and one more than its limit if
        there is a next one.
    :param limit: how many the page shows at most.
    :param present: makes the JSON of one.
    :param make_marker: makes the marker of one.
    :param path: of the list: see ``url``.
    """
    shown = fitting(found[:limit], present)
    more = {}
    if len(found) > len(shown):
        query = {**pecan.request.GET.mixed(), 'limit': limit,
                 'marker': make_marker(found[len(shown) - 1])}
        # A parameter that was repeated is a list.
        told = urllib.parse.urlencode(query, doseq=True)
        more['next'] = f'{url(path)}?{told}'
    return {name: shown, **more}


def fitting(found, present=lambda each: each, room=None):
    """Return the JSON of as many as an answer has room for, a list.

    :param present: makes the JSON of one.
    :param room: in bytes; None for all of an answer.
    """
    shown, room = [], MAX_PAGE if room is None else room
    for each in map(present, found):
        room -= length(each) + 1
        if room < 0 and shown:
            break
        shown.append(each)
    return shown


def length(shown):
    """The bytes that JSON takes in an answer."""
    return len(json.dumps(shown, separators=(',', ':')))
