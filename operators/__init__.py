"""Curve operators."""
