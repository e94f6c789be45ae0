# SPDX-License-Identifier: Apache-2.0
"""The kinds of disagreement about notices: work that nobody has completed."""

from collections.abc import Iterator

from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import snapshot


class OverdueNotice(base.Kind):
    """A notice of the node is still open after its ``due_at``, so the work
    takes longer than planned, or nobody has closed the notice.
    """

    name = 'overdue-notice'
    needs_nova = False
    instructions = ('Close the notice if the work is done; otherwise set '
                    'another time with ``notice set --due-at``: '
                    ':doc:`/how-to/maintenance`.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for uuid, node in cloud.nodes.items():
            if node.has_overdue_notice:
                yield None, uuid, None

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        return (f'close it if the work is done, or set another due time: '
                f'openstack baremetal reservation notice list --overdue '
                f'--node {cloud.format_node(finding.node)}')


class ProjectCordon(base.Kind):
    """A project has reported the node as broken, with a cordon, so nobody gets
    it until the notice is closed.
    """

    name = 'project-cordon'
    needs_nova = False
    instructions = ('Repair the machine, and close the notice: '
                    ':doc:`/how-to/give-back`.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for uuid, node in cloud.nodes.items():
            if node.cordon_project:
                yield None, uuid, None

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        project = cloud.nodes[str(finding.node)].cordon_project
        return (f'repair the machine, which project {project} has reported: '
                f'openstack baremetal reservation notice list --state open '
                f'--node {cloud.format_node(finding.node)}')
