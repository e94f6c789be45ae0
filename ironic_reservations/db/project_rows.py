# SPDX-License-Identifier: Apache-2.0
"""Statements on the projects whose reservations are limited."""

import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations
projects = models.projects

# Not "project_id", which an UPDATE reserves for the column.
_PROJECT_ID = sa.bindparam('project', type_=sa.String)

#: Write the row of a project, if it has one.
#:
#: UPDATE reservations_projects SET serial = serial + 1
#: WHERE project_id = :project
WRITE_PROJECT = sa.update(projects).where(
    projects.c.project_id == _PROJECT_ID
).values(serial=projects.c.serial + 1)

#: Insert the row of a project.
INSERT_PROJECT = sa.insert(projects).values(project_id=_PROJECT_ID, serial=0)

#: Count the live reservations of a project by resource class.
COUNT_USED = sa.select(nodes.c.resource_class, sa.func.count()).join_from(
    reservations, nodes, expressions.CARRIED).where(
        expressions.equals_text(reservations.c.project_id, _PROJECT_ID),
        expressions.LIVE
).group_by(nodes.c.resource_class)
