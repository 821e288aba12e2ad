"""Judging without target labels: functions of saved arrays, never of a trainer."""
