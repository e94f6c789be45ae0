# SPDX-License-Identifier: Apache-2.0
"""Finds the nodes that a request for notices names."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_utils import uuidutils
import sqlalchemy as sa

from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import target_rows
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import transaction

#: Number of nodes that one statement reads.
NODES_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class Target:
    """A node that a request for notices names.

    :param lessee: project that leases the node, or None.
    :param pool_project: project that has the node in a pool, or None.
    :param holder: project that has reserved the node, or None.
    :param provision_state: None if it is not reserved.
    :param project_id: ``pool_project`` if that is the caller's, otherwise
        ``holder``.
    """

    id: int
    uuid: str
    name: str | None
    node_owner: str | None
    lessee: str | None
    pool_project: str | None
    holder: str | None
    provision_state: str | None
    project_id: str | None

    @property
    def is_held(self) -> bool:
        """Whether it is reserved, and no instance was deployed to it yet."""
        return (self.provision_state is not None
                and values.find_state(self.provision_state) == 'reserved')


@dataclasses.dataclass(frozen=True)
class Authority:
    """The caller's permissions on notices.

    :param may_write: whether the caller may write any notice of a node, as an
        operator or the node's owner.
    :param may_report: whether the caller may report faults of a node that its
        project has reserved, and change its reports.
    :param reach: that of the caller; unlimited for operators.
    """

    may_write: Callable[[context.Owned], bool]
    may_report: Callable[[context.Owned], bool]
    reach: values.Ownership

    def may_see(self, target: Target) -> bool:
        """Return whether the caller may know that a node exists."""
        return (self.reach.covers(target.node_owner, target.lessee,
                                  target.pool_project)
                or self.reach.has_project(target.project_id))

    def is_reporter(self, target: context.Owned) -> bool:
        """Return whether the caller may report faults of a node.

        :param target: a node that its project has reserved, or a notice that
            its project has created.
        """
        return (target.project_id is not None
                and target.project_id == self.reach.project_id
                and self.may_report(target))

    def has_machine(self, target: Target) -> bool:
        """Return whether the caller's project has a node for its work.

        A hold gives no right, because it costs nothing.
        """
        project_id = (target.pool_project if target.provision_state is None
                      else None if target.is_held else target.holder)
        return project_id == self.reach.project_id and self.is_reporter(target)

    def may_cordon(self, target: Target) -> bool:
        """Return whether the caller's project may set a cordon of a node."""
        own = self.reach.project_id
        return self.has_machine(target) or (
            target.pool_project == own and self.is_reporter(target)
            and (target.provision_state is None or target.holder == own))

    def has_reported(self, notice: values.Notice) -> bool:
        """Return whether a notice is a report of the caller's project."""
        return not notice.is_failed_build and self.is_reporter(notice)


def find_named(names: Sequence[str], authority: Authority) -> list[Target]:
    """Return nodes in the order of their ids.

    :param names: UUIDs and names.
    :raises: InvalidInput for a node that the caller may not see.
    """
    names = [name.lower() if uuidutils.is_uuid_like(name) else name
             for name in names]
    # Ironic stores UUIDs as its clients sent them, and some databases regard
    # names as equal that differ.
    by_name = {name: target
               for target in _read(authority, expressions.is_named(names))
               if authority.may_see(target)
               for name in (target.name, target.uuid.lower())}
    for number, name in enumerate(names):
        if name not in by_name:
            raise exception.InvalidInput(
                f'nodes.{number}', 'must be the UUID or the name of a node',
                got=name)
    return sorted({by_name[name] for name in names},
                  key=lambda target: target.id)


def find_in_domain(by: str, value: str,
                   authority: Authority) -> Iterator[Target]:
    """Yield the nodes of a domain in the order of their ids.

    A project-scoped caller gets only nodes that its project owns or has
    reserved. Nodes are read page by page, because the caller may need only the
    first ones.

    :param by: key of the domain; see ``group_policy.find_domain``.
    """
    if by == 'conductor_group':
        value = value.lower()
    after: int | None = 0
    while after is not None:
        engine.check_deadline()
        nodes = [search.make_node(row._mapping) for row in engine.fetch_rows(
            target_rows.select_facts(by, value, authority.reach, after,
                                     NODES_AT_ONCE))]
        yield from _read(authority, target_rows.has_id(
            [node.id for node in nodes
             if group_policy.find_domain(node, by) == value]))
        after = nodes[-1].id if len(nodes) == NODES_AT_ONCE else None


def find_nodes(ids: Collection[int], authority: Authority) -> list[Target]:
    """Return nodes in the order of their ids."""
    return _read(authority, target_rows.has_id(ids))


def check_unchanged(tx: transaction.Transaction, nodes: Sequence[Target],
                    authority: Authority) -> None:
    """Check that nodes still belong to those to whom they did.

    The transaction has written their rows, so no other one changes this;
    those of notices without cordon need not be written.

    :raises: ConcurrentChange.
    """
    if nodes and [*nodes] != _read(authority, target_rows.has_id(
            [node.id for node in nodes]), execute=tx.execute):
        raise transaction.ConcurrentChange()


def _read(authority: Authority, *where: sa.ColumnElement[bool],
          execute: Callable[..., Iterable[sa.Row[Any]]] = engine.fetch_rows
          ) -> list[Target]:
    """Return nodes in the order of their ids.

    A node of a pool of the caller's project is as one that it has reserved.
    """
    project_id = authority.reach.project_id
    return [Target(**row._mapping, project_id=(
        project_id if project_id and row.pool_project == project_id
        else row.holder))
        for row in execute(target_rows.select_targets(*where))]
