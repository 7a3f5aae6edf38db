"""Statistics: intervals, bootstraps, tests of paired differences, corrections for several tests, and averages.

Every number of an evaluation, a comparison, an analysis or a benchmark that carries an interval or a p-value gets it
here. The package needs nothing but numpy and scipy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
