# Two commands matter: `make demo` paints a picture through the three real services, `make test` proves them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= cpu
export DIPTYCH_CACHE ?= $(CURDIR)/.cache
SHELL := /bin/bash

.DEFAULT_GOAL := help

help: ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | sort | awk -F'|' '{printf "  %-16s %s\n", $$1, $$2}'

install: ## make .venv from the lock (PROFILE=cpu|cuda); minutes once, then nothing
	@launch/install.sh "$(PYTHON)" "$(VENV)" "$(PROFILE)"

model: install ## write the tiny random checkpoint to .cache/
	@$(BIN)/diptych tiny-model $(DIPTYCH_CACHE)/tiny-glm-image

demo: model ## start everything and paint out/demo.png (ONCE=1: stop afterwards)
	@ONCE=$(ONCE) DEMO=1 ROLE=all launch/launch.sh

up: model ## start gateway, AR and DiT on this machine; Ctrl-C stops them
	@ROLE=all launch/launch.sh

lint: install ## ruff, mypy --strict, import-linter, shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck launch/*.sh docker/*.sh tests/deploy/*.sh .ci/run

test: model ## every test that this machine can run; skips are listed with their reasons
	$(BIN)/pytest

test-fast: install ## unit and service tests only: no engine, no process
	$(BIN)/pytest tests/unit tests/service

test-deploy: model ## images, compose, two nodes, manifests, for real: root, 25 GB, half an hour (docs/deploy.md)
	@tests/deploy/run.sh

soak: model ## steady load and what grows meanwhile, on the simulator and on real engines (MINUTES=20 each)
	$(BIN)/python -m bench.soak --engine sim --minutes $(or $(MINUTES),20)
	$(BIN)/python -m bench.soak --engine vllm-omni --rate 0.5 --minutes $(or $(MINUTES),20)

bench: model ## the whole stack beside vllm serve --omni
	$(BIN)/python -m bench.pipeline

bench-%: model ## one bench: handoff, gateway, dit, ar, tp, growth, plan_check
	$(BIN)/python -m bench.$*

.PHONY: help install model demo up lint test test-fast test-deploy soak bench
