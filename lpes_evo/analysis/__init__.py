"""Why scales work: how far they move the hidden states of a model, and where its attention goes.

* `measure_drift` and `summarise_drift`: hidden states under scales against those of the untouched model, layer by
  layer, for a curve and for what it must be compared with (`drift_arms`).
* `measure_attention` and `summarise_attention`: what the last token attends to, untouched and under scales.
* `decay_curve` and `layer_frequencies`: the long-term decay of rotary embeddings in each layer.
* `relative_l2`, `cosine_distance`, `LinearCka` and `cka_distance`: the measures themselves.
* Functions named ``plot_`` return matplotlib figures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
