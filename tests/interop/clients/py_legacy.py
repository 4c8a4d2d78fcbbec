"""The official Python client with the handshake of 2025-11-25 and a session."""

from py_checks import main

main("legacy", "2025-11-25")
