from ._bezier import bernstein as bernstein, de_casteljau as de_casteljau, invert as invert
from ._constraints import CurveConstraints as CurveConstraints, CurveKind as CurveKind
from ._crossover import cx_blend as cx_blend, cx_mix as cx_mix, cx_splice as cx_splice
from ._errors import CurveError as CurveError, LpesError as LpesError
from ._fit import fit_curve as fit_curve
from ._fitness import CurveFitness as CurveFitness
from ._genome import BezierGenome as BezierGenome
from ._gradient import mut_gradient as mut_gradient
from ._init import (
    init_constant as init_constant,
    init_constants as init_constants,
    init_identity as init_identity,
    init_quasi_random as init_quasi_random,
    init_random_walk as init_random_walk,
)
from ._mutation import (
    mut_mix as mut_mix,
    mut_point as mut_point,
    mut_shift as mut_shift,
    mut_tilt as mut_tilt,
)
from ._nearest import nearest_indices as nearest_indices
from ._space import CurveSpace as CurveSpace
