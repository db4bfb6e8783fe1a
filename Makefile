# Every verb sets up what it needs on a fresh machine (Debian, Python 3.11); the second time that takes no time.
SHELL := /bin/bash
PY := .venv/bin/python
T ?=
N ?= 2

.PHONY: help setup demo up test chaos check fix loop bench-review lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

setup: ## virtual environment, browser parts, translations
	@deploy/setup.sh

demo: setup ## the whole product on this machine, with a sample plant and simulated devices
	@exec $(PY) manage.py demo

up: setup ## the whole product on this machine, empty
	@exec $(PY) manage.py up

loop: setup ## the whole loop without a browser; a table, and one JSON line at the end
	@exec $(PY) manage.py loop

test: ## all tests, Chromium included; T=tests/console picks some, N=4 runs so many modules side by side
	@deploy/setup.sh test
	@$(PY) -m pytest --ignore=tests/chaos -n $(N) --dist loadfile --no-loadscope-reorder $(T)

bench-review: ## review pages at a million captures, beside Django's own paginator; minutes
	@deploy/setup.sh test
	@$(PY) -m bench.review

chaos: ## tests that kill processes during real trainings; minutes
	@deploy/setup.sh test
	@$(PY) -m pytest tests/chaos

check: setup ## lint, format, types, import contracts, Django's own checks
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) manage.py check --fail-level WARNING
	@LOOPLINE_DATABASE_POOL=0 $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

fix: setup ## lint and format, repaired where tools can
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

lock: ## remake requirements.lock from pyproject.toml
	@deploy/lock.sh

clean: ## remove what set-up made in this checkout (not the shared environment, not the state)
	@rm -rf .venv node_modules static/vendor .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis test-output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} + ; find locale -name '*.mo' -delete
