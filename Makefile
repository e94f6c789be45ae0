# SPDX-License-Identifier: Apache-2.0
#
# Needs Python 3.11 or later, git and make; installs the rest below .tox.
#
## make quickstart   run a demonstration on a real Ironic with the plugin
## make serve        start the same Ironic; Ctrl-C stops it
## make cloud        start a whole OpenStack with the plugin
## make cloud-down   stop that OpenStack
## make dashboard    start Horizon with the panels; Ctrl-C stops it
## make test         run the default test suites, with a summary
## make test-SUITE   run another suite, added to the summary; SUITE is one of:
##     long          tests that take half a minute or more
##     mysql         tests that need a database server, on MySQL
##     nova          all tests of the Nova driver
##     nova33        tests that depend on Nova 33 (2026.1); nova32: 2025.2
##     cloud         a whole OpenStack, through its public interfaces
##     survival      crashes and failures under load, shortened
##     galera        the same on a cluster; on an idle machine
##     hostile       malicious requests, shortened
##     install       installation next to several releases of Ironic
##     redfish       Ironic's redfish driver with an emulated BMC
##     dashboard     the panels of Horizon, in a browser
## make bench        measure the cost of a hold, and draw it (20 minutes)
## make lint         check style, types and words
## make docs         build documentation, API reference, release notes, and
##                   a manual page
## make api-ref      record the samples and the OpenAPI document of the API
## make dist         build the sdist and the wheel of the current commit
## make help         show this help
##
## PORT and DIR choose where quickstart, serve and cloud run, and PORT where
## dashboard runs. ARGS is passed to pytest together with paths of tests, and
## to stestr as a regular expression if SUITE begins with nova:
##   make serve PORT=6390
##   make cloud ARGS="--computes 5 --nodes 100"
##   make test ARGS="tests/unit -k matching"
##   make test-survival ARGS="tests/survival -k quorum"
##   make test-nova ARGS=test_smoke

# A bare "make" starts nothing.
.DEFAULT_GOAL := help

PYTHON ?= python3
TOX := .tox/bootstrap/bin/tox
# Not run below tox, which sends several interrupts for one Ctrl-C: a program
# that stops its servers must get the first one only.
IN_ENV := env PATH="$(CURDIR)/.tox/py3/bin:$$PATH"
SUITE = $(IN_ENV) tools/suite.sh
SUMMARY = $(PYTHON) tools/summary.py .tox/results

# Modules of the environment are compiled once, when first imported (see
# tox.ini), and not again by each process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart serve cloud cloud-down dashboard test bench lint docs \
    api-ref dist help \
    environment environment-dashboard

quickstart: environment
	@exec $(IN_ENV) python -m tools.quickstart $(ARGS)

serve: environment
	@exec $(IN_ENV) python -m tools.quickstart --serve $(ARGS)

cloud: environment
	@exec $(IN_ENV) python -m tools.trial_cloud up $(ARGS)

cloud-down:
	@if [ -d .tox/py3 ]; \
	then exec $(IN_ENV) python -m tools.trial_cloud down $(ARGS); \
	else echo 'No cloud in this directory'; fi

dashboard: environment-dashboard
	@exec $(IN_ENV) python -m tools.dashboard $(ARGS)

test: environment
	@rm -rf .tox/results
	@status=0; \
	$(SUITE) test $(ARGS) || status=1; \
	$(PYTHON) tools/packages.py --hint; \
	$(SUMMARY); \
	exit $$status

test-dashboard: environment-dashboard

# The summary includes all suites since "make test"; the status is that of this
# suite alone. A regular expression is quoted, as it may contain a "|".
test-%: environment
	@status=0; \
	$(SUITE) $* $(if $(findstring nova,$*),$(if $(ARGS),'$(ARGS)'),$(ARGS)) \
	    || status=1; \
	$(SUMMARY); \
	exit $$status

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

# Not run below tox, as above.
bench: $(TOX)
	@$(TOX) run -q --notest -e bench
	@exec env PATH="$(CURDIR)/.tox/bench/bin:$$PATH" \
	    python -m tests.benchmark $(ARGS)

lint: $(TOX)
	@$(TOX) run -e pep8

docs: $(TOX)
	@$(TOX) run -e docs

# The document contains the samples, so it comes last.
api-ref: environment
	@IRONIC_RESERVATIONS_RECORD=1 $(IN_ENV) pytest -q \
	    tests/api/test_samples.py tests/unit/test_openapi.py

dist: $(TOX)
	@$(TOX) run -e dist

environment: $(TOX)
	@$(TOX) run -q --notest -e py3

environment-dashboard: environment
	@$(TOX) run -q --notest -e dashboard

$(TOX): constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or later is needed; choose it with PYTHON=...")'
	$(PYTHON) -m venv .tox/bootstrap
	$(@D)/python -m pip install -q -c constraints.txt tox
	@touch $@
