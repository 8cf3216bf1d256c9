"""Tests. The folder is a package so that tests can import `tests.lab` and `tests.fakes`."""

from __future__ import annotations
