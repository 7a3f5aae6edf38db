"""Why scales work: how far they move the hidden states of a model, and where its attention goes.

* `measure_drift` and `summarise_drift`: hidden states under scales against those of the untouched model, layer by
  layer, for a curve and for what it must be compared with (`drift_arms`).
* `measure_attention` and `summarise_attention`: what the last token attends to, untouched and under scales.
* `decay_curve` and `layer_frequencies`: the long-term decay of rotary embeddings in each layer.
* `relative_l2`, `cosine_distance`, `LinearCka` and `cka_distance`: the measures themselves.
* Functions named ``plot_`` return matplotlib figures.
"""

from lpes_evo._lazy import lazy_names

__all__ = [
    "MEASURES",
    "AnalysisInput",
    "AttentionMass",
    "Drift",
    "LinearCka",
    "cka_distance",
    "cosine_distance",
    "decay_curve",
    "drift_arms",
    "inputs_of_examples",
    "inputs_of_text",
    "layer_frequencies",
    "measure_attention",
    "measure_drift",
    "plot_attention",
    "plot_decay",
    "plot_drift_by_layer",
    "plot_drift_of_arms",
    "plot_drift_retrieval",
    "plot_gold_attention",
    "relative_l2",
    "summarise_attention",
    "summarise_drift",
]

_MODULES = {
    "MEASURES": "_hidden_states",
    "AnalysisInput": "_inputs",
    "AttentionMass": "_attention_mass",
    "Drift": "_hidden_states",
    "LinearCka": "_similarity",
    "cka_distance": "_similarity",
    "cosine_distance": "_similarity",
    "decay_curve": "_decay",
    "drift_arms": "_arms",
    "inputs_of_examples": "_inputs",
    "inputs_of_text": "_inputs",
    "layer_frequencies": "_decay",
    "measure_attention": "_attention_mass",
    "measure_drift": "_hidden_states",
    "plot_attention": "_pictures",
    "plot_decay": "_pictures",
    "plot_drift_by_layer": "_pictures",
    "plot_drift_of_arms": "_pictures",
    "plot_drift_retrieval": "_pictures",
    "plot_gold_attention": "_pictures",
    "relative_l2": "_similarity",
    "summarise_attention": "_attention_summary",
    "summarise_drift": "_drift_summary",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
