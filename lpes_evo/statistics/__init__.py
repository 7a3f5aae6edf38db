"""Statistics: intervals, bootstraps, tests of paired differences, corrections for several tests, and averages.

* `Interval`: a value with its limits.
* `wilson_interval`, `order_interval` and `combined_interval`: intervals that need no resampling.
* `mean_interval`, `paired_difference`, `median_interval`, `statistic_interval` and `column_limits`: percentile
  bootstraps, in which the examples of one source are drawn together.
* `sign_test_p`, `signed_rank_p`, `sign_flip_p` and `exchange_p`: p-values of paired differences; `holm` corrects them.
* `paired_comparison`, `unpaired_comparison` and `rank_correlation`: comparisons of vectors of scales.
* `group_means` and `macro_average`: averages over groups.

Every interval and every p-value of an evaluation, a comparison, an analysis or a benchmark comes from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
