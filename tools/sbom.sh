#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Add SHA256SUMS and a software bill of materials (CycloneDX) to the packages
# of tools/dist.sh, for "make dist":
#   tools/sbom.sh DIRECTORY
# It lists what pip installs for the API, the driver and the commands with the
# constraints. A repetition writes the same files.
set -eu
umask 022
constraints=$(cd "$(dirname "$0")/.." && pwd)/constraints.txt
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=$(echo ironic_reservations-*.whl)
version=${wheel#ironic_reservations-}
version=${version%%-*}
python -m venv --without-pip "$work/env"
# By its version: pip would record the path of a file.
python -m pip --quiet --python "$work/env/bin/python" install --no-compile \
    --constraint "$constraints" --find-links . \
    "ironic-reservations[mysql,nova,osc,quota]==$version"
cyclonedx-py environment --output-reproducible --validate \
    --output-file "ironic_reservations-$version.cdx.json" \
    "$work/env/bin/python"
sha256sum ironic_reservations-* >SHA256SUMS
