"""Servers written for the tests, where there is no real one to start."""

from __future__ import annotations
