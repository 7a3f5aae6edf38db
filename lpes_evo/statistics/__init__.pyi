from ._averages import group_means as group_means, macro_average as macro_average
from ._bootstrap import (
    column_limits as column_limits,
    mean_interval as mean_interval,
    median_interval as median_interval,
    paired_difference as paired_difference,
    statistic_interval as statistic_interval,
)
from ._comparisons import (
    paired_comparison as paired_comparison,
    rank_correlation as rank_correlation,
    unpaired_comparison as unpaired_comparison,
)
from ._intervals import (
    Interval as Interval,
    combined_interval as combined_interval,
    order_interval as order_interval,
    wilson_interval as wilson_interval,
)
from ._tests import (
    exchange_p as exchange_p,
    holm as holm,
    sign_flip_p as sign_flip_p,
    sign_test_p as sign_test_p,
    signed_rank_p as signed_rank_p,
)
