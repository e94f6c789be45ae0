#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Build the sdist and the wheel of the current commit, for "make dist", in place
# of former packages of ours:
#   tools/dist.sh [DIRECTORY]
# Two builds of a commit with the same tools are equal byte for byte: times are
# those of the commit, and nothing depends on the machine, the user or the path.
set -eu
umask 022
mkdir -p "${1:-dist}"
target=$(cd "${1:-dist}" && pwd)
rm -f "$target"/ironic_reservations-* "$target/SHA256SUMS"
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# Without core.abbrev, the length of the commit's name, which pbr records,
# depends on the number of objects in the repository.
git clone -q -c core.abbrev=12 . "$work/tree"
python -m build --no-isolation --sdist --outdir "$work" "$work/tree"
cd "$work"
name=$(basename ./*.tar.gz .tar.gz)
# setuptools does not use SOURCE_DATE_EPOCH for the sdist.
tar xzf "$name.tar.gz"
tar --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner -c "$name" |
    gzip -9n >"$target/$name.tar.gz"
python -m build --no-isolation --wheel --outdir "$target" \
    "$target/$name.tar.gz"
