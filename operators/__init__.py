"""Evolutionary operators for smooth curves over the layers of a model, or over any other order.

A `BezierGenome` holds the control points of a curve. A `CurveSpace` defines which control points are feasible, and
gives the value of each layer. The curve is a Bezier curve, or the linear pieces or the cubic spline of the same control
points. The operators work with plain DEAP, and need only NumPy, SciPy and DEAP; reading curves needs no DEAP::

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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
