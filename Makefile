# SPDX-License-Identifier: Apache-2.0
#
# Needs Python 3.11 or later, git and make; brings everything else.
#
## make quickstart   a real Ironic with the plugin, shown and stopped again
## make serve        the same, left running until Ctrl-C
## make cloud        a whole OpenStack with it, left running
## make cloud-down   the end of that
## make dashboard    Horizon with the panels on a small fleet, left running
## make test         the tests of every day, and their sum
## make test-SUITE   more of them, added to the sum; SUITE is one of:
##     long          what takes half a minute or more
##     mysql         what needs a database server, on MySQL
##     nova          all of the Nova driver's tests
##     nova33        those that Nova 33 (2026.1) could change; nova32: 2025.2
##     cloud         a whole OpenStack, from its outside
##     survival      what must be survived, shortened
##     galera        that of a cluster, alone on the machine
##     hostile       a stranger who sends anything, shortened
##     install       what installing moves
##     dashboard     the panels of Horizon, in a browser
## make bench        what a hold costs, drawn too; takes twenty minutes
## make lint         style
## make docs         documentation, API reference, release notes
## make help         this
##
## PORT and DIR choose where quickstart, serve and cloud run, and PORT where
## dashboard does. ARGS is handed on to pytest with the paths of tests in it,
## and to stestr as a regular expression where SUITE begins with nova:
##   make serve PORT=6390
##   make cloud ARGS="--computes 5 --nodes 100"
##   make test ARGS="tests/unit -k matching"
##   make test-survival ARGS="tests/survival -k quorum"
##   make test-nova ARGS=test_smoke

# A bare "make" starts nothing.
.DEFAULT_GOAL := help

PYTHON ?= python3
TOX := .tox/bootstrap/bin/tox
# Not run below tox, which makes several interrupts of one Ctrl-C: whoever is
# stopping servers then needs the first one only.
IN_ENV := env PATH="$(CURDIR)/.tox/py3/bin:$$PATH"
SUITE = $(IN_ENV) tools/suite.sh
SUMMARY = $(PYTHON) tools/summary.py .tox/results

# What the environment has is compiled when it is first imported, see tox.ini,
# and not by each process anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart serve cloud cloud-down dashboard test bench lint docs help \
    environment environment-dashboard

quickstart: environment
	@exec $(IN_ENV) python -m tools.quickstart $(ARGS)

serve: environment
	@exec $(IN_ENV) python -m tools.quickstart --serve $(ARGS)

cloud: environment
	@exec $(IN_ENV) python -m tools.cloud up $(ARGS)

cloud-down:
	@if [ -d .tox/py3 ]; \
	then exec $(IN_ENV) python -m tools.cloud down $(ARGS); \
	else echo 'There is no cloud here'; fi

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

# The sum is of all that has run since "make test"; the status is its own. A
# regular expression is quoted, as it may have a "|" in it.
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
