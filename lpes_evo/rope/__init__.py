"""Rope."""
