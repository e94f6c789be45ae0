# SPDX-License-Identifier: Apache-2.0
"""Sends a mail to the project that has a machine, for each of its notices.

    python notices_mail.py --config-file notices-mail.conf

It reads the notifications of notices from the message bus. The address of a
project is its property "email" in Keystone; without one, it gets no mail.
"""

import datetime
from email import message
import json
import logging
import smtplib
import sys
import time

import openstack
from openstack import exceptions
from oslo_config import cfg
import oslo_messaging

LOG = logging.getLogger(__name__)

OPTIONS = [
    cfg.StrOpt('topic', default='ironic_versioned_notifications',
               help='Topic that no other program reads, one of [DEFAULT] '
                    'versioned_notifications_topics of ironic.conf.'),
    cfg.StrOpt('sender', required=True, help='Address of the sender.'),
    cfg.StrOpt('host', default='localhost', help='SMTP server.'),
    cfg.PortOpt('port', default=25, help='Port of the SMTP server.'),
    cfg.StrOpt('deliveries',
               help='File that gets a line of JSON for each mail that the '
                    'SMTP server has accepted.')]

TEXTS = ('starts_at', 'due_at', 'latest_start', 'ends_at', 'category',
         'description', 'ticket', 'action', 'instance_uuid')

SCHEDULE = '''
If your server or your pool has the machine, you can choose another time, at
the latest {latest_start}:

    openstack baremetal reservation notice schedule {uuid} \\
        --node {node_uuid} --at TIME
'''


class Mailer:
    """Receives the notifications of notices, and sends the mails.

    :param conf: values of the options.
    :param find_address: returns the address of a project, or None.
    """

    filter_rule = oslo_messaging.NotificationFilter(
        event_type=r'^baremetal\.reservation\.notice\.')

    #: Seconds until the next attempt to send a mail.
    pause = 60

    def __init__(self, conf, find_address):
        self._conf = conf
        self._find_address = find_address

    def info(self, context, publisher, event_type, payload, metadata):
        notice = payload['ironic_object.data']
        try:
            if notice['is_shown_to_project'] and (
                    address := self._find_address(notice['project_id'])):
                self._send(address, notice)
                self._record(address, notice)
        except (OSError, exceptions.SDKException) as error:
            # SMTP's codes from 500 on are final.
            if max((getattr(error, 'smtp_code', 0), *(
                    code for code, _ in
                    getattr(error, 'recipients', {}).values()))) >= 500:
                LOG.warning('No mail of notice %s: %s', notice['uuid'], error)
                return None
            LOG.warning('Will try again in %d seconds: %s', self.pause, error)
            time.sleep(self.pause)
            return oslo_messaging.NotificationResult.REQUEUE

    def _send(self, address, notice):
        mail = message.EmailMessage()
        mail['From'], mail['To'] = self._conf.sender, address
        mail['Subject'] = '{}: {} is {}'.format(
            notice['node_name'] or notice['node_uuid'], notice['kind'],
            notice['state'])
        content = ''.join(f'{name}: {notice[name]}\n' for name in TEXTS
                          if notice.get(name))
        if notice['state'] == 'planned' and notice.get('latest_start'):
            content += SCHEDULE.format(**notice)
        mail.set_content(content)
        with smtplib.SMTP(self._conf.host, self._conf.port) as server:
            server.send_message(mail)

    def _record(self, address, notice):
        if self._conf.deliveries is None:
            return
        line = json.dumps({
            'delivered_at': datetime.datetime.now(datetime.UTC).isoformat(),
            'address': address,
            **{name: notice[name] for name in (
                'uuid', 'node_uuid', 'project_id', 'kind', 'state')}})
        try:
            with open(self._conf.deliveries, 'a', encoding='utf-8') as file:
                file.write(f'{line}\n')
        except OSError as error:
            # Without this, the mail would be sent again and again.
            LOG.error('The mail of notice %s to %s is not recorded: %s',
                      notice['uuid'], address, error)


def main():
    logging.basicConfig()
    conf = cfg.ConfigOpts()
    conf.register_opts(OPTIONS, 'mail')
    conf(sys.argv[1:], project='notices-mail')
    identity = openstack.connect().identity

    def find_address(project_id):
        project = identity.find_project(project_id)
        return project and project.to_dict().get('email')

    oslo_messaging.set_transport_defaults('ironic')
    listener = oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(conf),
        [oslo_messaging.Target(topic=conf.mail.topic)],
        [Mailer(conf.mail, find_address)], executor='threading',
        allow_requeue=True)
    listener.start()
    listener.wait()


if __name__ == '__main__':
    main()
