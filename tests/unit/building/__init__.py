"""Tests of ``numamirror_build.building`` on an upstream that builds in a second."""
