# SPDX-License-Identifier: Apache-2.0
"""Makes responses: JSON values, URLs, and pages of limited size."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import datetime
import json
import typing
from typing import Any
import urllib.parse

import pecan
from wsme import types as wtypes
from wsme.rest import json as wsme_json

from ironic_reservations import conf
from ironic_reservations import verdicts
from ironic_reservations.api import markers
from ironic_reservations.api import schema
from ironic_reservations.matching import request_spec

Row = typing.TypeVar('Row')

#: Maximum size in bytes of the list in a response. The rest of the response,
#: such as the link to the next page, fits into the remainder of 4 MiB.
MAX_PAGE = 2 ** 22 - 2 ** 16


def make_url(path: str = '') -> str:
    """Return the URL of a resource as the client knows it.

    As in Ironic, the base is the URL that a trusted proxy forwards, otherwise
    ``[api] public_endpoint``, otherwise the host of the request.

    :param path: appended to the URL of all reservations.
    """
    request = pecan.request
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        base = request.application_url
    else:
        base = conf.CONF.api.public_endpoint or request.host_url
    return f'{base.rstrip("/")}/v1/reservations{path}'


def set_created(is_new: bool, location: str) -> None:
    """Set the status and the location of the response to a POST.

    :param is_new: False if an earlier request has created the resource.
    :param location: its URL.
    """
    pecan.response.status = 201 if is_new else 200
    pecan.response.location = location


def set_no_content() -> None:
    """Set the status of a response without a body."""
    pecan.response.status = 204


class Json(wtypes.UserType):
    """A JSON value, shown unchanged.

    :param request: its JSON schema in requests, if requests may set it.
    :param schema: keywords of its JSON schema, for the OpenAPI document.
    """

    basetype = str
    name = 'json'

    def __init__(self, request: dict[str, Any] | None = None,
                 **schema: Any) -> None:
        self.request = request
        self.schema = schema


class Time(Json):
    """A time as the database stores it: UTC, without a time zone."""

    name = 'time'

    def __init__(self, type: str | list[str] = 'string',
                 request: dict[str, Any] | None = None) -> None:
        super().__init__(request, type=type, format='date-time')

    def tobasetype(self, value: datetime.datetime) -> str:
        return value.replace(tzinfo=datetime.UTC).isoformat()


def settable_text(**keywords: Any) -> Json:
    """Return a text that requests may set, or null.

    :param keywords: see ``schema.nullable_text``.
    """
    return Json(schema.nullable_text(**keywords), type=['string', 'null'])


def list_settable(datatype: type[wtypes.Base]) -> dict[str, dict[str, Any]]:
    """Return the schemas of the keys that requests may set, by key."""
    return {attribute.name: attribute.datatype.request
            for attribute in wtypes.list_attributes(datatype)
            if getattr(attribute.datatype, 'request', None)}


def whole_object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has all of these keys."""
    return {'type': 'object', 'required': [*properties],
            'properties': properties}


_COUNT: dict[str, Any] = {'type': 'integer', 'minimum': 0}

#: Schema of a domain of a group; with segments, of its domains by level.
DOMAIN: dict[str, Any] = {'type': ['string', 'array', 'null'],
                          'items': {'type': ['string', 'null']}}

# Values that several resources have.
NULLABLE_TEXT = Json(type=['string', 'null'])
NULLABLE_TIME = Time(['string', 'null'])
SETTABLE_TIME = Time(['string', 'null'], schema.TIME)
COUNT = Json(**_COUNT)
TEXTS = Json(type='array', items={'type': 'string'})
HEALTH = Json(type='object', additionalProperties=_COUNT)
LEVELS = Json(type='array', items=schema.LEVEL)
DOMAINS = Json(type='array', items=whole_object(value=DOMAIN, nodes=_COUNT))
#: How many members or segments of a new group are wanted, and there is room
#: for.
ROOM = Json(**whole_object(wanted=_COUNT, available=_COUNT))
QUOTA = Json(**whole_object(resource={'type': 'string'}, limit=_COUNT,
                            used=_COUNT, requested=_COUNT))
#: See ``verdicts.Explanation``.
EXPLANATION = Json(
    type='object', required=['considered', 'eliminated'], properties={
        'considered': _COUNT,
        'eliminated': {'type': 'array', 'items': whole_object(
            by={'type': 'string'}, nodes=_COUNT)},
        'nearest': {
            'type': 'object', 'required': ['by', 'nodes'], 'properties': {
                'by': {'type': 'string'}, 'value': DOMAIN, 'nodes': _COUNT,
                'segments': _COUNT}},
        'unknown_nodes': {'type': 'array', 'items': {'type': 'string'}},
    })


def make_json(datatype: type[wtypes.Base],
              values: dict[str, Any]) -> dict[str, Any]:
    """Return values as the JSON object that a WSME type declares.

    :param values: values of the attributes to show, by name.
    """
    return {attribute.name: wsme_json.tojson(
                attribute.datatype, values[attribute.name])
            for attribute in wtypes.list_attributes(datatype)
            if attribute.name in values}


def present_explanation(explanation: verdicts.Explanation) -> dict[str, Any]:
    """Return an explanation as JSON."""
    nearest = explanation.nearest
    return {
        'considered': explanation.considered,
        'eliminated': [{'by': name, 'nodes': number}
                       for name, number in explanation.eliminated.items()],
        **({} if nearest is None else {'nearest': {
            name: value for name, value in (
                ('by', nearest.by), ('value', nearest.value),
                ('nodes', nearest.nodes), ('segments', nearest.segments))
            if value is not None}}),
        **({'unknown_nodes': [*explanation.unknown]} if explanation.unknown
           else {})}


def present_verdict(verdict: verdicts.Verdict) -> dict[str, Any]:
    """Return the items that a refusal and a dry run have in common."""
    return {
        'explanation': present_explanation(verdict.explanation),
        **{name: vars(room) for name, room in (
            ('members', verdict.members), ('segments', verdict.segments))
           if room is not None},
        **({} if verdict.level is None else {'level': verdict.level}),
        **({'ignored': verdict.ignored} if verdict.ignored else {})}


def show_ignored(spec: request_spec.RequestSpec) -> dict[str, Any]:
    """Return the item that lists the extra specs not compared with nodes."""
    return {'ignored': spec.ignored} if spec.ignored else {}


def pop_limit(query: dict[str, Any]) -> int:
    """Remove the limit from a query, and return the length of a page."""
    max_limit: int = conf.CONF.api.max_limit
    return min(int(query.pop('limit', max_limit)), max_limit)


def make_page(name: str, rows: Sequence[Row], limit: int,
              show: Callable[[Row], dict[str, Any]],
              make_marker: Callable[[Row], str],
              path: str = '') -> dict[str, Any]:
    """Return a page of a list as JSON.

    :param name: key of the list.
    :param rows: rows of the page, and one more if there is a next page.
    :param limit: maximum number of rows in the page.
    :param show: makes the JSON of a row.
    :param make_marker: makes the marker of a row.
    :param path: path of the list; see ``make_url``.
    """
    page: dict[str, Any] = {name: fit_rows(rows[:limit], show)}
    number = len(page[name])
    if len(rows) > number:
        query = {**pecan.request.GET.mixed(), 'limit': limit,
                 'marker': make_marker(rows[number - 1])}
        # The value of a repeated parameter is a list.
        text = urllib.parse.urlencode(query, doseq=True)
        page['next'] = f'{make_url(path)}?{text}'
    return page


def add_page(response: dict[str, Any], name: str, rows: Sequence[Row],
             show: Callable[[Row], dict[str, Any]],
             get_position: Callable[[Row], tuple[str, Any]],
             marker: str | None, path: str, kind: str) -> dict[str, Any]:
    """Return a resource, as JSON, with a page of the rows that it contains.

    :param response: the resource with its ``uuid``; the page is added to it.
    :param name: key of the page.
    :param rows: all rows, sorted.
    :param show: makes the JSON of a row.
    :param get_position: returns the UUID of a row, and the number by which
        rows are sorted.
    :param marker: marker of the last row of the previous page, or its UUID.
    :param path: path of such resources; see ``make_url``.
    :param kind: what the UUID of a row is, for errors.
    :raises: InvalidInput if no row has the marker's UUID.
    """
    uuid = response['uuid']

    after = markers.decode(
        marker, uuid, [int],
        lambda ident: [number for row_uuid, number in map(get_position, rows)
                       if row_uuid.lower() == ident], kind)
    rest = [row for row in rows
            if after is None or get_position(row)[1] > after[0]]
    page = fit_rows(rest, show, MAX_PAGE - count_bytes(response))
    response[name] = page
    if len(rest) > len(page):
        _, number = get_position(rest[len(page) - 1])
        response['next'] = make_url(
            f'{path}/{uuid}?marker={markers.encode(uuid, [number])}')
    return response


def fit_rows(rows: Iterable[Row],
             show: Callable[[Row], Any] = lambda row: row,
             room: int | None = None) -> list[Any]:
    """Return the JSON of the first rows, at least one, that fit.

    :param show: makes the JSON of a row.
    :param room: maximum size in bytes, by default ``MAX_PAGE``.
    """
    values: list[Any] = []
    room = MAX_PAGE if room is None else room
    for value in map(show, rows):
        room -= count_bytes(value) + 1
        if room < 0 and values:
            break
        values.append(value)
    return values


def count_bytes(value: Any) -> int:
    """Return the size of a JSON value in a response."""
    return len(json.dumps(value, separators=(',', ':')))
