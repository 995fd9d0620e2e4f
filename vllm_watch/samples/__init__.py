"""Frozen records of measurements, in base units."""
