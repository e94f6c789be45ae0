# SPDX-License-Identifier: Apache-2.0
#
# Needs Python 3.11 or later, git and make; brings everything else.
#
#   make quickstart    a real Ironic with the plugin, shown and stopped again
#   make serve         the same, left running until Ctrl-C
#   make test          all tests
#   make lint          style
#   make docs          documentation, API reference, release notes
#
# PORT and DIR choose where quickstart and serve run; ARGS is handed on:
#   make serve PORT=6390
#   make test ARGS="tests/unit -k matching"

PYTHON ?= python3
TOX := .tox/bootstrap/bin/tox
RUN := $(TOX) run -e py3 --
RESULTS := .tox/results

.PHONY: quickstart serve test lint docs

quickstart: $(TOX)
	@$(RUN) python -m tools.quickstart $(ARGS)

serve: $(TOX)
	@$(RUN) python -m tools.quickstart --serve $(ARGS)

# The sum is the last line, whatever tox has to say.
test: $(TOX)
	@rm -rf $(RESULTS)
	@status=0; \
	$(RUN) pytest --junit-xml=$(RESULTS)/pytest.xml $(ARGS) || status=1; \
	$(PYTHON) tools/summary.py $(RESULTS) || status=1; \
	exit $$status

lint: $(TOX)
	@$(TOX) run -e pep8

docs: $(TOX)
	@$(TOX) run -e docs

$(TOX): constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or later is needed; choose it with PYTHON=...")'
	$(PYTHON) -m venv .tox/bootstrap
	$(@D)/python -m pip install -q -c constraints.txt tox
	@touch $@
