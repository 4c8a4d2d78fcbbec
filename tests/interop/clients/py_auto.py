"""The official Python client in its default mode: asks `server/discover` first."""

from py_checks import main

main("auto", "2026-07-28")
