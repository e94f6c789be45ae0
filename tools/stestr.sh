#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run the Nova driver's tests, as "stestr run" would:
#   tools/stestr.sh RESULT [ARGUMENTS]
# leaves RESULT.xml for tools/summary.py. Each result has a repository of its
# own, as otherwise a run that never began would show the one before it.
set -u
result=$1
shift
rm -rf "$result.stestr"
mkdir -p "$result.stestr"
stestr --repo-url "$result.stestr" run --concurrency 2 \
    --suppress-attachments "$@"
status=$?
stestr --repo-url "$result.stestr" last --subunit |
    subunit2junitxml --output-to "$result.part" || status=1
# Whole at once: another suite may be summing them up now.
mv "$result.part" "$result.xml"
exit $status
