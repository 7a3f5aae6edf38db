"""Analysis: how far scales move the hidden states of a model, where its attention goes, and which layers matter.

* `measure_drift` and `summarise_drift`: hidden states under scales against those of the untouched model, layer by
  layer, for a curve and for the vectors that it is compared with (`drift_arms`).
* `measure_attention` and `summarise_attention`: the attention of the last token, untouched and under scales.
* `report_sensitivity`: the change of the answers with the scale of each layer.
* `decay_curve` and `layer_frequencies`: the long-term decay of rotary embeddings in each layer.
* `relative_l2`, `cosine_distance`, `LinearCka` and `cka_distance`: the measures of drift.
* Functions whose name begins with ``plot_`` return matplotlib figures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
