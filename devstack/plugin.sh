#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# DevStack's plugin: https://docs.openstack.org/devstack/latest/plugins.html
# DevStack itself defines what is called here and not defined, and reads
# "settings" before.

# Write the options of a file of the documentation into a configuration file,
# but for those of authentication, which DevStack has its own values of:
#   ironic_reservations_merge FILE OF THE DOCUMENTATION, CONFIGURATION FILE
function ironic_reservations_merge {
    local section="" line
    while read -r line; do
        case $line in
            '' | '#'*) ;;
            '['*) section=${line//[][]/} ;;
            auth_* | username* | password* | user_domain_*) ;;
            *) iniset "$2" "$section" "${line%% =*}" "${line#*= }" ;;
        esac
    done <"$IRONIC_RESERVATIONS_DIR/doc/source/$1"
}

function install_ironic_reservations {
    # As editable, like all of DevStack. That also lets Nova find the driver,
    # although Nova lies in another directory.
    setup_develop "$IRONIC_RESERVATIONS_DIR" mysql,nova,osc,quota
}

function configure_ironic_reservations {
    local loaded
    loaded=$(iniget "$IRONIC_CONF_FILE" api middleware)
    if [[ ",$loaded," != *,reservations,* ]]; then
        iniset "$IRONIC_CONF_FILE" api middleware \
            "${loaded:+$loaded,}reservations"
    fi
}

function configure_ironic_reservations_driver {
    ironic_reservations_merge nova-compute.conf "$NOVA_CONF"
    ironic_reservations_merge nova-scheduler.conf "$NOVA_CONF"
    ironic_reservations_merge placement.conf "$PLACEMENT_CONF"
    # A user in a project is shown no nodes.
    local option
    for option in project_name project_domain_id project_domain_name; do
        inidelete "$NOVA_CONF" ironic "$option"
    done
    iniset "$NOVA_CONF" ironic system_scope all
}

# Ironic's plugin, which comes before, has made Ironic's tables and started its
# API, which answers 503 until ours are there, and needs no restart.
function init_ironic_reservations {
    "$(get_python_exec_prefix)/ironic-reservations-dbsync" \
        --config-file "$IRONIC_CONF_FILE" upgrade
}

if is_service_enabled ir-api; then
    case "$1/${2:-}" in
        stack/install)
            echo_summary 'Installing ironic-reservations'
            install_ironic_reservations
            ;;
        stack/post-config)
            echo_summary 'Configuring ironic-reservations'
            configure_ironic_reservations
            if is_service_enabled nova &&
                    [[ $IRONIC_RESERVATIONS_DRIVER == True ]]; then
                configure_ironic_reservations_driver
            fi
            ;;
        stack/extra)
            echo_summary 'Initializing ironic-reservations'
            init_ironic_reservations
            if is_service_enabled n-cpu &&
                    [[ $IRONIC_RESERVATIONS_DRIVER == True ]]; then
                # A new host does not start without Ironic, which was not
                # there yet.
                restart_service devstack@n-cpu
            fi
            ;;
    esac
fi
