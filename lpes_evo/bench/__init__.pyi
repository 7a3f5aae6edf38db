from ._report import run_bench as run_bench
from ._settings import BenchSettings as BenchSettings
from ._table import print_bench as print_bench
