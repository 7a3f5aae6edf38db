"""The embedded model: a small Llama with rotary positions that fails on long recall prompts; see its README.md."""

from importlib.resources import files
from pathlib import Path

__all__ = ["TINY_DIRECTORY"]

TINY_DIRECTORY = Path(str(files(__name__)))
"""Folder with the configuration, weights and tokenizer, as `transformers` loads them."""
