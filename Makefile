# SPDX-License-Identifier: Apache-2.0
#
# Needs Python 3.11 or later, git and make; brings everything else.
#
#   make quickstart    a real Ironic with the plugin, shown and stopped again
#   make serve         the same, left running until Ctrl-C
#   make cloud         a whole OpenStack with it, left running
#   make cloud-down    the end of that
#   make test          the tests, but for the long ones
#   make test-long     those that take long, added to the sum
#   make test-survival what must be survived, shortened, added to the sum
#   make test-hostile  a stranger who sends anything, shortened, added to the sum
#   make test-install  what installing moves, added to the sum
#   make test-nova     those of the Nova driver alone
#   make test-nova33   the same with Nova 33 (2026.1), added to the sum
#   make test-nova32   the life cycle with Nova 32 (2025.2), added to the sum
#   make test-cloud    a whole OpenStack, from its outside, added to the sum
#   make bench         what a hold costs, drawn too; takes a quarter of an hour
#   make lint          style
#   make docs          documentation, API reference, release notes
#
# PORT and DIR choose where quickstart, serve and cloud run; ARGS is handed on.
# With ARGS, "make test" and "make test-long" run pytest alone; the Nova
# driver's tests are stestr's, which takes regular expressions:
#   make serve PORT=6390
#   make cloud ARGS="--computes 5 --nodes 100"
#   make test ARGS="tests/unit -k matching"
#   make test-nova ARGS=test_smoke

PYTHON ?= python3
TOX := .tox/bootstrap/bin/tox
RESULTS := .tox/results
NOVA := $(CURDIR)/.tox/nova
NOVA33 := $(NOVA)/33.0.2
NOVA32 := $(NOVA)/32.2.0
# Not run below tox, which makes several interrupts of one Ctrl-C: whoever is
# stopping servers then needs the first one only.
IN_ENV := env PATH="$(CURDIR)/.tox/py3/bin:$$PATH"
SUMMARY = $(PYTHON) tools/summary.py $(RESULTS)
# Quoted: an expression may have a "|" in it.
REGEX = $(if $(ARGS),'$(ARGS)')
PYTEST = $(IN_ENV) pytest $(if $(ARGS),$(ARGS),-n 2 --dist loadfile)
STESTR = $(IN_ENV) tools/stestr.sh $(RESULTS)/$(1) $(2)

.PHONY: quickstart serve cloud cloud-down test test-long test-survival \
    test-hostile test-install test-nova test-nova33 test-nova32 test-cloud \
    bench lint docs environment

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

test: environment
	@rm -rf $(RESULTS)
	@status=0; \
	$(PYTEST) --junit-xml=$(RESULTS)/pytest.xml || status=1; \
	$(if $(ARGS),,$(call STESTR,nova,--exclude-regex '\[long\]') || status=1;) \
	$(SUMMARY) || status=1; \
	exit $$status

test-long: environment
	@status=0; \
	$(PYTEST) -m long --junit-xml=$(RESULTS)/long.xml || status=1; \
	$(if $(ARGS),,$(call STESTR,nova-long,'\[long\]') || status=1;) \
	$(SUMMARY) || status=1; \
	exit $$status

test-survival test-hostile test-install: test-%: environment
	@status=0; \
	$(PYTEST) --junit-xml=$(RESULTS)/$*.xml \
	    $(if $(ARGS),,tests/$*) || status=1; \
	$(SUMMARY) || status=1; \
	exit $$status

test-nova: environment
	@rm -rf $(RESULTS)
	@status=0; \
	$(call STESTR,nova,$(REGEX)) || status=1; \
	$(SUMMARY) || status=1; \
	exit $$status

test-nova33: OF = $(NOVA33)
test-nova33: environment $(NOVA33)
test-nova32: OF = $(NOVA32)
test-nova32: REGEX = $(or $(ARGS),'test_lifecycle|test_nova|test_smoke')
test-nova32: environment $(NOVA32)
test-nova33 test-nova32: test-%:
	@export PYTHONPATH=$(OF); \
	$(IN_ENV) python -c 'from importlib import metadata; \
	    print("Nova", metadata.version("nova"))'; \
	status=0; \
	$(call STESTR,$*,$(REGEX)) || status=1; \
	$(SUMMARY) || status=1; \
	exit $$status

# Found before the Nova that is installed; all else is the same.
$(NOVA33) $(NOVA32):
	@$(IN_ENV) python -m pip install -q --no-deps --no-compile \
	    --target $@ nova==$(notdir $@)

test-cloud: environment
	@status=0; \
	$(IN_ENV) pytest --junit-xml=$(RESULTS)/cloud.xml \
	    $(if $(ARGS),$(ARGS),tests/cloud) || status=1; \
	$(SUMMARY) || status=1; \
	exit $$status

# Not run below tox, as above.
bench: $(TOX)
	@$(TOX) run -q --notest -e bench
	@.tox/bench/bin/python -m pip install -q -c constraints.txt mysqlclient 2>/dev/null \
	    || echo 'No mysqlclient: its library and headers are not installed.'
	@exec env PATH="$(CURDIR)/.tox/bench/bin:$$PATH" \
	    python -m tests.benchmark $(ARGS)

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
