"""Seeing inside: logs, metric definitions, traces and request ids. Imports nothing else of ours."""
