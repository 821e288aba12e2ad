"""Encoders of our own, for `--backbone paper/encoders/FILE.py:FUNCTION`."""
