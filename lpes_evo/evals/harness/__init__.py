"""MMLU, C-Eval and any other task of lm-evaluation-harness, on a model under scales; needs the extra ``[eval]``.

Names are loaded on first use, so that importing this package loads neither lm-eval nor torch nor transformers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
