"""Makes statistics.json, the values that the program's statistics are tested against.

Needs Python with numpy and scipy (1.17.1 made the committed file); the tests do not.
Run it here: python statistics.py > statistics.json
"""

import itertools
import json

import numpy as np
from scipy import stats

rng = np.random.default_rng(2005_09561)


def floats(values):
    return [float(x) for x in values]


def bimodal(n, share):
    solved = rng.random(n) < share
    return np.round(np.where(solved, 0.97, 0.12) + 0.02 * rng.standard_normal(n), 3)


out = {}

out["spearman"] = []
for n in (2, 7, 30, 80):
    a = np.round(rng.random(n), 1 if n > 7 else 3)  # coarse: with ties
    b = np.round(0.5 * a + rng.random(n), 1 if n > 7 else 3)
    rho = stats.spearmanr(a, b).statistic
    out["spearman"].append(
        dict(a=floats(a), b=floats(b), ranks=floats(stats.rankdata(a)), rho=float(rho))
    )

out["permutation"] = []
samples = [
    (bimodal(5, 0.5), bimodal(5, 0.5)),
    (bimodal(5, 0.9), bimodal(5, 0.1)),
    (bimodal(3, 0.5), bimodal(7, 0.8)),
    (np.array([0.1, 0.1, 0.9]), np.array([0.1, 0.9, 0.9])),
    (np.round(rng.normal(0.5, 0.1, 8), 3), np.round(rng.normal(0.6, 0.1, 7), 3)),
]
for a, b in samples:
    test = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.abs(np.mean(x, axis=axis) - np.mean(y, axis=axis)),
        vectorized=True,
        n_resamples=np.inf,
        alternative="greater",
    )
    out["permutation"].append(dict(a=floats(a), b=floats(b), p=float(test.pvalue)))

# P(K = k): below and above the range are the gaps before the first and behind the last of the
# m values, so that the number outside, n - (number in the other m - 1 gaps), follows from the
# negative hypergeometric distribution: n - K values are drawn before the (m - 1)-th of m marks.
out["outside"] = []
for n, m in ((1, 5), (3, 5), (5, 5), (10, 5), (4, 3)):
    inside = stats.nhypergeom(n + m, n, m - 1)
    out["outside"].append(
        dict(ours=n, theirs=m, pmf=floats([inside.pmf(n - k) for k in range(n + 1)]))
    )

out["binomial"] = []
for n, k in ((10, 4), (80, 35), (400, 160)):
    p = stats.binomtest(k, n, 2 / 6, alternative="greater").pvalue
    out["binomial"].append(dict(n=n, k=k, p=float(p)))

out["multiple"] = []
for n in (1, 6, 40):
    p = np.round(rng.random(n) ** 3, 4)
    order = np.argsort(p, kind="stable")
    holm = np.empty(n)
    holm[order] = np.maximum.accumulate(np.minimum(1, (n - np.arange(n)) * p[order]))
    out["multiple"].append(
        dict(p=floats(p), holm=floats(holm), bh=floats(stats.false_discovery_control(p)))
    )

out["quantile"] = []
for n, q in ((1, 0.3), (5, 0.025), (6, 0.975), (100, 0.5)):
    values = np.round(rng.random(n), 3)
    out["quantile"].append(
        dict(values=floats(values), q=q, value=float(np.quantile(values, q)))
    )

# The bootstrap distribution of the mean of five values is known: all 5^5 samples. Its
# percentiles, and the distance to the neighbouring possible means as the tolerance.
out["bootstrap"] = []
for values in (bimodal(5, 0.5), bimodal(5, 0.8), np.round(rng.normal(0.5, 0.1, 5), 3)):
    means = np.array([np.mean(s) for s in itertools.product(values, repeat=5)])
    near = [abs(np.quantile(means, q + d) - np.quantile(means, q)) for q in (0.025, 0.975) for d in (-0.01, 0.01)]
    out["bootstrap"].append(
        dict(
            values=floats(values),
            low=float(np.quantile(means, 0.025)),
            high=float(np.quantile(means, 0.975)),
            step=float(max(near)),
        )
    )

print(json.dumps(out, indent=1))
