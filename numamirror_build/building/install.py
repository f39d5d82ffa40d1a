"""Putting a build's programs where people want them, with the libraries they need."""
