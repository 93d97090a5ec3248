"""Write rliable_oracle.json: what rliable 1.2.0 answers on random scores. It wants pandas < 3, so give it its own environment:

python -m venv oracle && oracle/bin/pip install rliable==1.2.0 'pandas<3' arch==7.2.0
oracle/bin/python tests/report/make_rliable_oracle.py > tests/report/rliable_oracle.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

SEED = 20211106
REPLICATES = 20_000


def scores(agent: int) -> Any:
    """Trials x games, with ties, negative scores and some above 1."""
    rng = np.random.default_rng([SEED, agent])
    return np.round(rng.normal(0.3 + 0.1 * agent, 0.6, size=(5, 8)), 1)


def main() -> None:
    """Print the oracle."""
    from rliable import library, metrics

    x, y = scores(0), scores(1)
    thresholds = np.linspace(-1, 2, 13)
    np.random.seed(SEED)  # noqa: NPY002  (rliable accepts a random_state and ignores it)
    functions = {"iqm": metrics.aggregate_iqm, "mean": metrics.aggregate_mean, "gap": metrics.aggregate_optimality_gap}
    points, intervals = library.get_interval_estimates(
        {"x": x}, lambda s: np.array([function(s) for function in functions.values()]), reps=REPLICATES
    )
    better, better_interval = library.get_interval_estimates({"x,y": (y, x)}, metrics.probability_of_improvement, reps=2_000)
    profiles, bands = library.create_performance_profile({"x": x}, thresholds, reps=2_000)
    document = {
        "made by": "rliable 1.2.0, see make_rliable_oracle.py",
        "points": dict(zip(functions, points["x"].tolist(), strict=True)),
        "intervals": dict(zip(functions, intervals["x"].T.tolist(), strict=True)),
        "improvement": float(better["x,y"]),
        "improvement interval": better_interval["x,y"].ravel().tolist(),
        "thresholds": thresholds.tolist(),
        "profile": profiles["x"].tolist(),
        "profile band": bands["x"].tolist(),
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
