"""Evaluation of a model under scales on the benchmarks of long-context work.

Names are loaded on first use, so that importing this package loads neither torch nor transformers.
"""
