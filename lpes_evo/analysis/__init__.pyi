from ._arms import drift_arms as drift_arms
from ._attention_mass import AttentionMass as AttentionMass, measure_attention as measure_attention
from ._attention_summary import summarise_attention as summarise_attention
from ._decay import decay_curve as decay_curve, layer_frequencies as layer_frequencies
from ._drift_record import DriftReport as DriftReport
from ._drift_summary import summarise_drift as summarise_drift
from ._hidden_states import (
    MEASURE_NAMES as MEASURE_NAMES,
    MEASURES as MEASURES,
    Drift as Drift,
    measure_drift as measure_drift,
)
from ._inputs import (
    AnalysisInput as AnalysisInput,
    inputs_of_examples as inputs_of_examples,
    inputs_of_text as inputs_of_text,
)
from ._pictures import (
    arm_label as arm_label,
    plot_attention as plot_attention,
    plot_decay as plot_decay,
    plot_drift_by_layer as plot_drift_by_layer,
    plot_drift_of_arms as plot_drift_of_arms,
    plot_drift_retrieval as plot_drift_retrieval,
    plot_gold_attention as plot_gold_attention,
)
from ._reports import (
    new_folder as new_folder,
    report_attention as report_attention,
    report_drift as report_drift,
)
from ._request import AnalysisRequest as AnalysisRequest, prepare as prepare
from ._sensitivity import (
    AFTER as AFTER,
    BEFORE as BEFORE,
    measure_sensitivity as measure_sensitivity,
    plot_sensitivity as plot_sensitivity,
    report_sensitivity as report_sensitivity,
    summarise_sensitivity as summarise_sensitivity,
)
from ._similarity import (
    LinearCka as LinearCka,
    cka_distance as cka_distance,
    cosine_distance as cosine_distance,
    relative_l2 as relative_l2,
)
from ._tables import (
    CLAIM_WORDS as CLAIM_WORDS,
    print_attention as print_attention,
    print_drift as print_drift,
    print_sensitivity as print_sensitivity,
)
