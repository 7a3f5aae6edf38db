from ._costs import MethodCost as MethodCost, Run as Run, speed_of as speed_of
from ._measure import measure_costs as measure_costs
from ._memory import peak_meter as peak_meter
from ._report import BenchReport as BenchReport, run_bench as run_bench
from ._settings import BenchSettings as BenchSettings
from ._shapes import Shape as Shape, random_model as random_model, shape_names as shape_names
from ._table import print_bench as print_bench
