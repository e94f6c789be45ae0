# SPDX-License-Identifier: Apache-2.0
"""The SQL for MySQL, on which the suites usually do not run."""

import dataclasses
import itertools
import re
import types

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import functions
from ironic_reservations.db import group_rows
from ironic_reservations.db import models
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from tests.unit import tables

NODE = matching.Node(id=1, uuid='n')
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
HELD = types.SimpleNamespace(
    id=1, node_id=1, instance_uuid=INSTANCE, host='h', group_id=1,
    provision_state='available')

TRAITS = {f'trait:CUSTOM_{word.upper()}': word
          for word in ('required', 'forbidden')}


def compile_(statement, dialect=None):
    return str(statement.compile(dialect=dialect or mysql.dialect()))


def holds():
    """Yield the variants of the guarded UPDATE."""
    for traits, kind, claim_id in itertools.product(
            ({}, TRAITS), ('any', 'project'), (None, 1)):
        matcher = dataclasses.replace(tables.make_matcher(
            {'resource_class': 'gold', 'extra_specs': traits}),
            ownership=values.Ownership('p', kind))
        yield (f'hold-{len(traits)}-{kind}-{claim_id}',
               node_rows.hold_node(NODE, matcher, INSTANCE, claim_id)[0])


#: Statements whose conditions read other tables, or their own.
WRITES = [
    *holds(),
    *((f'release-{kind}', node_rows.release_nodes(
        [HELD], ('available',), values.Ownership('p', kind))[0])
      for kind in ('any', 'project')),
    ('release-untouched', node_rows.release_untouched_node(HELD)[0]),
    ('update', reservation_rows.update_rows(
        [1], ('available',), {'lease': 60})),
    ('clear-leases', reservation_rows.clear_leases(('active',))),
    ('delete-stale', reservation_rows.delete_stale_row(HELD)),
    ('delete-unmoved', reservation_rows.delete_unmoved_rows(HELD)),
    ('delete-expired', reservation_rows.delete_expired_row(HELD)),
    ('grow', group_rows.GROW),
    ('delete-group', group_rows.DELETE_UNCHANGED_GROUP),
]


@pytest.mark.parametrize('statement', [
    pytest.param(statement, id=name) for name, statement in WRITES])
def test_no_subquery_names_the_table_that_is_written(statement):
    """MySQL refuses that with error 1093, also in EXISTS."""
    text = compile_(statement)
    table = statement.table.name
    assert re.match(rf'(UPDATE|DELETE FROM) {table}\b', text)
    conditions = text.partition('WHERE')[2]
    for names in re.findall(r'\bFROM ([\w, ]+)', conditions):
        assert table not in re.split(r'\W+', names), text


@pytest.mark.parametrize('statement', [
    pytest.param(statement, id=name) for name, statement in WRITES
    if 'FROM ports' in compile_(statement)])
def test_ports_are_those_of_the_node(statement):
    """Otherwise a port of any node would count, on every database."""
    for table in 'ports', 'portgroups', 'volume_targets':
        assert re.search(
            rf'\(SELECT 1 \nFROM {table} \nWHERE {table}\.node_id = ',
            compile_(statement))


# JSON

CPUS = functions.property_text(models.nodes.c.properties,
                               sa.literal_column("'$.cpus'"))
IRREGULAR = functions.irregular_properties(models.nodes.c.properties)

#: MySQL applies its JSON functions only to texts that it can parse.
PLAIN = (
    "CASE WHEN LENGTH(CAST(nodes.properties AS BINARY)) - LENGTH(REPLACE("
    "REPLACE(CAST(nodes.properties AS BINARY), '{', ''), '[', '')) < 100 "
    'THEN JSON_VALID(nodes.properties) AND '
    'INSTR(CAST(nodes.properties AS BINARY), CHAR(92)) = 0 ELSE 0 END')


def test_property_on_mysql():
    """JSON_VALUE is limited to 512 characters there."""
    value = "JSON_EXTRACT(nodes.properties, '$.cpus')"
    assert compile_(CPUS) == (
        f"CASE WHEN {PLAIN} AND JSON_TYPE({value}) "
        f"NOT IN ('ARRAY', 'OBJECT', 'NULL') "
        f'THEN JSON_UNQUOTE({value}) END')


def test_irregular_properties_on_mysql():
    assert compile_(IRREGULAR) == (
        f'CASE WHEN {PLAIN} THEN NULL ELSE nodes.properties END')


def test_properties_on_mariadb():
    """The dialect derives ``is_mariadb`` from the server's version."""
    dialect = mysql.dialect(is_mariadb=True)
    assert compile_(CPUS, dialect) == "JSON_VALUE(nodes.properties, '$.cpus')"
    text = 'CAST(nodes.properties AS BINARY)'
    assert compile_(IRREGULAR, dialect) == (
        f'CASE WHEN JSON_VALID(nodes.properties) AND INSTR({text}, CHAR(92)) '
        f"= 0 AND (INSTR({text}, '\": true') = 0 OR "
        f"{text} NOT RLIKE '\"(memory_mb|cpus|local_gb)\": true') "
        'THEN NULL ELSE nodes.properties END')
