#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run one suite of tests, for "make test" and "make test-SUITE":
#   tools/suite.sh SUITE [ARGUMENTS OF ITS RUNNER]
# The results go to .tox/results, where tools/summary.py sums them. The exit
# status is that of the runners of this suite.
set -u
# stestr would run the tests with this Python, not with that of the environment.
unset PYTHON
suite=$1
shift
results=.tox/results
mkdir -p $results
status=0

# Rename a result when it is complete, because another suite may read all
# results at any time.
publish() {
    mv "$1.part" "$1.xml" || status=1
}

# pytest_ RESULT ARGUMENTS
pytest_() {
    result=$1
    shift
    pytest --junit-xml="$results/$result.part" "$@" || status=1
    publish "$results/$result"
}

# stestr runs the tests of the Nova driver, and takes regular expressions:
#   stestr_ RESULT ARGUMENTS
# Each result has its own repository. Otherwise a run that did not start would
# show the results of the previous one.
stestr_() {
    result=$results/$1
    shift
    rm -rf "$result.stestr"
    mkdir -p "$result.stestr"
    stestr --repo-url "$result.stestr" run --concurrency 2 \
        --suppress-attachments "$@" || status=1
    stestr --repo-url "$result.stestr" last --subunit |
        subunit2junitxml --output-to "$result.part" || status=1
    publish "$result"
}

# Unpack older releases of Nova, which the tests compare with the installed one,
# unless another suite has done so.
unpack_nova() {
    mkdir -p .tox/nova
    releases=$(python tests/nova/seams.py) || exit 1
    for release in $releases; do
        flock .tox/nova/lock sh -c '
            [ -d "$0" ] || { rm -rf .tox/nova/part &&
                python -m pip install -q --no-deps --no-compile \
                    --target .tox/nova/part "nova==$1" &&
                mv .tox/nova/part "$0"; }' ".tox/nova/$release" "$release" ||
            exit 1
    done
}

# Run the tests of the driver with another release of Nova:
#   older_nova 33 RESULT ARGUMENTS
# Everything but Nova remains the same. Without arguments, only the tests of
# behaviour that differs in that release are run.
older_nova() {
    number=$1
    shift
    release=$(python tests/nova/seams.py | grep "^$number\.") || exit 1
    [ $# -gt 1 ] || set -- "$1" "$(python tests/nova/seams.py "$number")"
    export PYTHONPATH="$PWD/.tox/nova/$release"
    # Check that this release is the one that Python imports.
    python -c 'import importlib.metadata, sys
version = importlib.metadata.version("nova")
print("Nova", version)
sys.exit(version != sys.argv[1])' "$release" || exit 1
    stestr_ "$@"
}

# Run pytest's tests of a suite, and in parallel the suite's tests of the Nova
# driver. Both wait for servers most of the time, so together they take little
# longer than one of them. On two processors, 7:19 with three workers of pytest
# became 6:59 with four.
#   with_nova NOVAS_SUITE RESULT ARGUMENTS
with_nova() {
    setsid "$0" "$1" >"$results/$1.log" 2>&1 &
    other=$!
    trap 'kill -- -$other' INT TERM
    # By default xdist starts with the files that have the most tests, which are
    # the quickest ones.
    novas=$1
    shift
    pytest_ "$@" -n 4 --dist loadfile --no-loadscope-reorder
    wait $other || status=1
    cat "$results/$novas.log"
}

case $suite in
# Arguments are for pytest, so they exclude the tests of the driver.
test)
    if [ $# -gt 0 ]; then pytest_ test "$@"; else with_nova smoke test; fi ;;
smoke)
    unpack_nova
    stestr_ nova --exclude-regex '\[long\]' \
        --worker-file tests/nova/workers.yaml ;;
long)
    if [ $# -gt 0 ]; then pytest_ long -m long "$@"
    else with_nova nova-long long -m long; fi ;;
nova-long)
    # The other long tests run in "tox -e nova".
    stestr_ nova-long --worker-file tests/nova/workers.yaml \
        'test_(bad_nodes|explain|fail|fence|named|restart|servers|standby|takeover|upgrade).*\[long\]|TestOneRow\.test_repair' ;;
survival)
    # The cluster is a separate suite, because it measures times, and must not
    # share the machine.
    [ $# -gt 0 ] || set -- -n 2 --dist loadfile tests/survival \
        --ignore tests/survival/test_galera.py
    pytest_ survival "$@" ;;
galera)
    pytest_ galera "${@:-tests/survival/test_galera.py}" ;;
mysql)
    # Only those functional tests that race or follow the life of nodes depend
    # on the database server.
    [ $# -gt 0 ] || set -- tests/functional/test_races.py \
        tests/functional/test_smoke.py tests/functional/test_lifecycle.py \
        tests/functional/test_node_properties.py tests/core tests/api
    pytest_ mysql --server mysql -n 2 --dist loadfile \
        --no-loadscope-reorder "$@" ;;
nova)
    unpack_nova
    stestr_ nova "$@" ;;
nova33 | nova32 | nova31)
    unpack_nova
    older_nova "${suite#nova}" "$suite" "$@" ;;
cloud-2026.1)
    [ $# -gt 0 ] || set -- \
        tests/cloud/test_end_to_end.py::test_life_of_a_server \
        'tests/cloud/test_standby.py::test_dead_host[1]'
    pytest_ "$suite" -m 'long or not long' "$@" ;;
*) pytest_ "$suite" "${@:-tests/$suite}" ;;
esac
exit $status
