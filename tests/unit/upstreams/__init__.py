"""Tests of pins, sources and checkouts."""
