#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# DevStack's plugin: https://docs.openstack.org/devstack/latest/plugins.html
# DevStack defines the functions and variables that are not defined here, and
# reads "settings" first.

# Write the options of a documented file into a configuration file, except
# those for authentication, for which DevStack has values:
#   ironic_reservations_merge DOCUMENTED_FILE CONFIGURATION_FILE
function ironic_reservations_merge {
    local section="" line
    while read -r line; do
        case $line in
            '' | '#'*) ;;
            '['*) section=${line//[][]/} ;;
            auth_* | username* | password* | user_domain_*) ;;
            *) iniset "$2" "$section" "${line%% =*}" "${line#*= }" ;;
        esac
    done <"$IRONIC_RESERVATIONS_DIR/doc/source/examples/$1"
}

function install_ironic_reservations {
    # Editable, like all of DevStack. Nova finds an editable driver, too,
    # although Nova is in another directory.
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
    # Ironic shows no nodes to a user with a project-scoped token.
    local option
    for option in project_name project_domain_id project_domain_name; do
        inidelete "$NOVA_CONF" ironic "$option"
    done
    iniset "$NOVA_CONF" ironic system_scope all
    # The conductor of a cell counts the attempts, and has its own file.
    local attempts cell
    attempts=$(iniget "$NOVA_CONF" scheduler max_attempts)
    for cell in $(seq "$NOVA_NUM_CELLS"); do
        iniset "$(conductor_conf "$cell")" scheduler max_attempts "$attempts"
    done
}

# Ironic's plugin runs first: it has created Ironic's tables and started its
# API, which answers 503 until our tables exist, and needs no restart.
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
                # running yet.
                restart_service devstack@n-cpu
            fi
            ;;
    esac
fi
