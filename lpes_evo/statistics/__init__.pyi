from ._intervals import (
    mean_interval as mean_interval,
    paired_difference as paired_difference,
    wilson_interval as wilson_interval,
)
from ._tests import (
    by_source as by_source,
    holm as holm,
    median_interval as median_interval,
    paired_comparison as paired_comparison,
    rank_correlation as rank_correlation,
    signed_rank_p as signed_rank_p,
    unpaired_comparison as unpaired_comparison,
)
