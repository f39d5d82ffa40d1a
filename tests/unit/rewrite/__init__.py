"""Tests of the rewrite engine."""
