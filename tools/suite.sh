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
mkdir -p $results
status=0

# Give a result its name once it is complete, because another suite may read
# all results at any moment.
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
    publish "$result"
}

# Unpack the older releases of Nova, with which its tests compare the one that
# is installed, unless another suite has done so.
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

# Run the driver's tests with the release of Nova whose number begins so:
#   older_nova 33 RESULT ARGUMENTS
# All but Nova stays the same. Without a further argument only those tests
# run that look at what is different there.
older_nova() {
    number=$1
    shift
    release=$(python tests/nova/seams.py | grep "^$number\.") || exit 1
    [ $# -gt 1 ] || set -- "$1" "$(python tests/nova/seams.py "$number")"
    export PYTHONPATH="$PWD/.tox/nova/$release"
    # What runs is what was asked for.
    python -c 'import importlib.metadata, sys
found = importlib.metadata.version("nova")
print("Nova", found)
sys.exit(found != sys.argv[1])' "$release" || exit 1
    stestr_ "$@"
}

# Run pytest's tests of a suite, and beside them those of Nova's driver that
# belong to it: both wait for servers most of the time, so that they take
# little longer together than one of them alone. Of two processors a sixth is
# idle when pytest has two workers, and next to nothing when it has three.
#   beside NOVAS_SUITE RESULT ARGUMENTS
beside() {
    setsid "$0" "$1" >"$results/$1.log" 2>&1 &
    other=$!
    trap 'kill -- -$other' INT TERM
    # xdist would begin with the files that have the most tests, which are the
    # quickest ones.
    novas=$1
    shift
    pytest_ "$@" -n 3 --dist loadfile --no-loadscope-reorder
    wait $other || status=1
    cat "$results/$novas.log"
}

case $suite in
# With arguments they are pytest's, and Nova is not meant.
test)
    if [ $# -gt 0 ]; then pytest_ test "$@"; else beside smoke test; fi ;;
smoke)
    unpack_nova
    stestr_ nova --exclude-regex '\[long\]' \
        --worker-file tests/nova/workers.yaml ;;
long)
    if [ $# -gt 0 ]; then pytest_ long -m long "$@"
    else beside nova-long long -m long; fi ;;
nova-long)
    stestr_ nova-long '\[long\]' --worker-file tests/nova/workers.yaml ;;
survival)
    # The cluster is a suite of its own: it times what its members do, and
    # has to be alone on the machine.
    [ $# -gt 0 ] || set -- -n 2 --dist loadfile tests/survival \
        --ignore tests/survival/test_galera.py
    pytest_ survival "$@" ;;
galera)
    pytest_ galera "${@:-tests/survival/test_galera.py}" ;;
mysql)
    # Of the functional tests those that race, and those that lead nodes
    # through their lives: what the others see does not depend on a server.
    [ $# -gt 0 ] || set -- tests/functional/test_races.py \
        tests/functional/test_smoke.py tests/functional/test_life.py \
        tests/functional/test_properties.py tests/db tests/api
    pytest_ mysql --server mysql -n 2 --dist loadfile \
        --no-loadscope-reorder "$@" ;;
nova)
    unpack_nova
    stestr_ nova "$@" ;;
nova33 | nova32)
    unpack_nova
    older_nova "${suite#nova}" "$suite" "$@" ;;
*) pytest_ "$suite" "${@:-tests/$suite}" ;;
esac
exit $status
