#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run one suite of tests, for "make test" and "make test-SUITE":
#   tools/suite.sh SUITE [ARGUMENTS OF ITS RUNNER]
# The results go to .tox/results, where tools/summary.py sums them. The status
# is that of the suite's own runners: a failure elsewhere does not count.
set -u
suite=$1
shift
results=.tox/results
status=0

# pytest_ RESULT ARGUMENTS
pytest_() {
    result=$1
    shift
    pytest --junit-xml="$results/$result.xml" "$@" || status=1
}

# The Nova driver's tests are stestr's, which takes regular expressions:
#   stestr_ RESULT ARGUMENTS
# Each result has a repository of its own, as otherwise a run that never began
# would show the one before it.
stestr_() {
    result=$results/$1
    shift
    rm -rf "$result.stestr"
    mkdir -p "$result.stestr"
    stestr --repo-url "$result.stestr" run --concurrency 2 \
        --suppress-attachments "$@" || status=1
    stestr --repo-url "$result.stestr" last --subunit |
        subunit2junitxml --output-to "$result.part" || status=1
    # Whole at once: another suite may be summing them up now.
    mv "$result.part" "$result.xml"
}

# Have another release of Nova found before the one that is installed.
nova_release() {
    nova=$PWD/.tox/nova/$1
    [ -d "$nova" ] || python -m pip install -q --no-deps --no-compile \
        --target "$nova" "nova==$1" || exit 1
    export PYTHONPATH="$nova"
    python -c 'import importlib.metadata as m; print("Nova", m.version("nova"))'
}

case $suite in
test)
    # With arguments they are pytest's, and Nova is not meant.
    if [ $# -gt 0 ]; then pytest_ test "$@"; else
        pytest_ test -n 2 --dist loadfile
        stestr_ nova --exclude-regex '\[long\]'
    fi ;;
long)
    if [ $# -gt 0 ]; then pytest_ long -m long "$@"; else
        pytest_ long -m long -n 2 --dist loadfile
        stestr_ nova-long '\[long\]'
    fi ;;
nova) stestr_ nova "$@" ;;
nova33 | nova32)
    case $suite in
    nova33) nova_release 33.0.2 ;;
    nova32) nova_release 32.2.0 ;;
    esac
    stestr_ "$suite" "$@" ;;
*) pytest_ "$suite" "${@:-tests/$suite}" ;;
esac
exit $status
