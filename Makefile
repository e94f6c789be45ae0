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
##     long          tests that take much CPU time, or wait long
##     mysql         tests that need a database server, on MySQL
##     nova          all tests of the Nova driver
##     nova33        tests that depend on Nova 33 (2026.1)
##     nova32        tests that depend on Nova 32 (2025.2) alone; nova31: on
##                   Nova 31 (2025.1)
##     cloud         a whole OpenStack, through its public interfaces
##     cloud-2026.1  the same on 2026.1, shortened
##     survival      crashes and failures under load, shortened
##     galera        the same on a cluster; on an idle machine
##     hostile       malicious requests, shortened
##     install       installation next to several releases of Ironic
##     redfish       Ironic's redfish driver with an emulated BMC
##     dashboard     the panels of Horizon, in a browser
## make bench        measure and write the figures of the page on performance
##                   (25 minutes, on an idle machine)
## make lint         check style, types and words
## make docs         build documentation, API reference, release notes, and
##                   a manual page
## make api-ref      record the samples and the OpenAPI document of the API
## make dist         build the packages of the current commit, with checksums and
##                   a software bill of materials
## make help         show this help
##
## PORT and DIR choose where quickstart, serve and cloud run, and PORT where
## dashboard runs. RELEASE is the OpenStack that cloud starts, 2026.2 (default)
## or 2026.1, and CONCURRENCY how Nova's services run in it, eventlet or
## threading (default: as in the release). ARGS is passed to pytest together with
## paths of tests, and to stestr as a regular expression if SUITE begins with
## nova:
##   make serve PORT=6390
##   make cloud ARGS="--computes 5 --nodes 100"
##   make cloud RELEASE=2026.1 CONCURRENCY=threading
##   make test ARGS="tests/unit -k matching"
##   make test-survival ARGS="tests/survival -k quorum"
##   make test-nova ARGS=test_smoke

# A bare "make" starts nothing.
.DEFAULT_GOAL := help

PYTHON ?= python3
TOX := .tox/bootstrap/bin/tox
# Not run below tox, which sends several interrupts for one Ctrl-C: a program
# that stops its servers must get the first one only.
IN_ENV = env PATH="$(CURDIR)/.tox/$(ENV)/bin:$$PATH"
ENV = py3
RELEASE = 2026.2
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

cloud: ENV = $(if $(filter 2026.1,$(RELEASE)),cloud-2026.1,py3)
cloud: environment-$(RELEASE)
	@exec $(IN_ENV) python -m tools.trial_cloud up $(ARGS)

# Each of the environments can stop the clouds of both.
cloud-down:
	@for env in py3 cloud-2026.1; do \
	    bin="$(CURDIR)/.tox/$$env/bin"; \
	    [ ! -d "$$bin" ] || exec env PATH="$$bin:$$PATH" \
	        python -m tools.trial_cloud down $(ARGS); \
	done; \
	echo 'No cloud in this directory'

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

test-cloud-2026.1: ENV = cloud-2026.1
test-cloud-2026.1: environment-2026.1

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
	    python -m benchmark $(ARGS)

lint: $(TOX)
	@$(TOX) run -e pep8

docs: $(TOX)
	@$(TOX) run -e docs

# Responses are compared with the document that a process has loaded, and the
# document contains the samples: the first process records new parameters and
# keys, and the second one the samples. "make test" compares.
RECORD_DOCUMENT = tests/unit/test_openapi.py::test_document_is_current
api-ref: environment
	@$(IN_ENV) IRONIC_RESERVATIONS_RECORD=1 pytest -q $(RECORD_DOCUMENT)
	@$(IN_ENV) IRONIC_RESERVATIONS_RECORD=1 pytest -q \
	    tests/api/test_samples.py $(RECORD_DOCUMENT)

dist: $(TOX)
	@$(TOX) run -e dist

environment: $(TOX)
	@$(TOX) run -q --notest -e py3

environment-dashboard: environment
	@$(TOX) run -q --notest -e dashboard

environment-2026.2: environment ;

environment-2026.1: $(TOX)
	@$(TOX) run -q --notest -e cloud-2026.1

environment-%:
	@echo 'RELEASE must be 2026.2 or 2026.1, not $*' >&2; exit 1

$(TOX): constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or later is needed; choose it with PYTHON=...")'
	$(PYTHON) -m venv .tox/bootstrap
	$(@D)/python -m pip install -q -c constraints.txt tox
	@touch $@
