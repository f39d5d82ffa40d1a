"""The steps of a job at many pins, and what changes from pin to pin."""
