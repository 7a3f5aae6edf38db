"""Evolutionary search of layer-specific rotary-position scales for language models."""
