# SPDX-License-Identifier: Apache-2.0
#
# Needs Python 3.11 or later, git and make; brings everything else.
#
#   make quickstart    a real Ironic with the plugin, shown and stopped again
#   make serve         the same, left running until Ctrl-C
#   make test          the tests
#   make test-long     those that race for long, added to the sum
#   make lint          style
#   make docs          documentation, API reference, release notes
#
# PORT and DIR choose where quickstart and serve run; ARGS is handed on:
#   make serve PORT=6390
#   make test ARGS="tests/unit -k matching"

PYTHON ?= python3
TOX := .tox/bootstrap/bin/tox
RESULTS := .tox/results
# Not run below tox, which makes several interrupts of one Ctrl-C: whoever is
# stopping servers then needs the first one only.
IN_ENV := env PATH="$(CURDIR)/.tox/py3/bin:$$PATH"

.PHONY: quickstart serve test test-long lint docs environment

quickstart: environment
	@exec $(IN_ENV) python -m tools.quickstart $(ARGS)

serve: environment
	@exec $(IN_ENV) python -m tools.quickstart --serve $(ARGS)

test: environment
	@rm -rf $(RESULTS)
	@status=0; \
	$(IN_ENV) pytest --junit-xml=$(RESULTS)/pytest.xml $(ARGS) || status=1; \
	$(PYTHON) tools/summary.py $(RESULTS) || status=1; \
	exit $$status

test-long: environment
	@status=0; \
	$(IN_ENV) pytest -m long --junit-xml=$(RESULTS)/long.xml $(ARGS) \
	    || status=1; \
	$(PYTHON) tools/summary.py $(RESULTS) || status=1; \
	exit $$status

lint: $(TOX)
	@$(TOX) run -e pep8

docs: $(TOX)
	@$(TOX) run -e docs

environment: $(TOX)
	@$(TOX) run -q --notest -e py3

$(TOX): constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or later is needed; choose it with PYTHON=...")'
	$(PYTHON) -m venv .tox/bootstrap
	$(@D)/python -m pip install -q -c constraints.txt tox
	@touch $@
