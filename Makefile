# Thin: every target is `python3 dev.py TARGET`, where the commands and the set-up live.
.DEFAULT_GOAL := help
.PHONY: help demo test lint fmt unit sim integ stress chaos soak bench docs lock audit

help: ## the list of commands
	@python3 dev.py

demo test lint fmt unit sim integ stress chaos soak bench docs lock audit:
	@python3 dev.py $@ $(ARGS)
