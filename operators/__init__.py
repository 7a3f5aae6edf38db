"""Evolutionary operators for smooth curves over the layers of a model, or over any other order.

A `BezierGenome` holds the control points of a curve, a `CurveSpace` says which are feasible and reads the value
of each layer. The curve is a Bezier curve, or the linear pieces or cubic spline of the same points. Everything
works with plain DEAP, and needs NumPy, SciPy and DEAP only; what reads curves alone needs no DEAP either::

    import random
    from deap import algorithms, base, tools
    from lpes_evo.operators import CurveSpace

    space = CurveSpace(n_layers=32)
    toolbox = base.Toolbox()
    space.register(toolbox, weights=(1.0,))
    toolbox.register("evaluate", lambda genome: (-abs(space.decode([genome])[0] - 1.3).sum(),))
    toolbox.register("select", tools.selTournament, tournsize=3)
    random.seed(1)
    population = toolbox.population(n=50)
    population, logbook = algorithms.eaSimple(population, toolbox, 0.5, 0.3, ngen=20, verbose=False)

Randomness is Python's ``random``, as in DEAP, so ``random.seed`` reproduces a run.

- Space and genome: `CurveSpace`, `CurveConstraints`, `CurveKind`, `BezierGenome`, `CurveFitness`
- Initialisers: `init_random_walk`, `init_quasi_random`, `init_constant`, `init_constants`, `init_identity`
- Crossovers: `cx_blend`, `cx_splice`, `cx_mix`
- Mutations: `mut_point`, `mut_shift`, `mut_tilt`, `mut_mix`; with a gradient, `mut_gradient`
- Fit: `fit_curve`
- Bezier curves: `bernstein`, `de_casteljau`
- Errors: `LpesError`, `CurveError`
"""

from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.operators._bezier import bernstein, de_casteljau
    from lpes_evo.operators._constraints import CurveConstraints, CurveKind
    from lpes_evo.operators._crossover import cx_blend, cx_mix, cx_splice
    from lpes_evo.operators._errors import CurveError, LpesError
    from lpes_evo.operators._fit import fit_curve
    from lpes_evo.operators._fitness import CurveFitness
    from lpes_evo.operators._genome import BezierGenome
    from lpes_evo.operators._gradient import mut_gradient
    from lpes_evo.operators._init import (
        init_constant,
        init_constants,
        init_identity,
        init_quasi_random,
        init_random_walk,
    )
    from lpes_evo.operators._mutation import mut_mix, mut_point, mut_shift, mut_tilt
    from lpes_evo.operators._space import CurveSpace

__all__ = [
    "BezierGenome",
    "CurveConstraints",
    "CurveError",
    "CurveFitness",
    "CurveKind",
    "CurveSpace",
    "LpesError",
    "bernstein",
    "cx_blend",
    "cx_mix",
    "cx_splice",
    "de_casteljau",
    "fit_curve",
    "init_constant",
    "init_constants",
    "init_identity",
    "init_quasi_random",
    "init_random_walk",
    "mut_gradient",
    "mut_mix",
    "mut_point",
    "mut_shift",
    "mut_tilt",
]

_MODULES = {
    "BezierGenome": "_genome",
    "CurveConstraints": "_constraints",
    "CurveError": "_errors",
    "CurveFitness": "_fitness",
    "CurveKind": "_constraints",
    "CurveSpace": "_space",
    "LpesError": "_errors",
    "bernstein": "_bezier",
    "cx_blend": "_crossover",
    "cx_mix": "_crossover",
    "cx_splice": "_crossover",
    "de_casteljau": "_bezier",
    "fit_curve": "_fit",
    "init_constant": "_init",
    "init_constants": "_init",
    "init_identity": "_init",
    "init_quasi_random": "_init",
    "init_random_walk": "_init",
    "mut_gradient": "_gradient",
    "mut_mix": "_mutation",
    "mut_point": "_mutation",
    "mut_shift": "_mutation",
    "mut_tilt": "_mutation",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
