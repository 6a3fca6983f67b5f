#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Makes golden.json: samples, and what SciPy, NumPy and statsmodels say about them.
#   pip install scipy statsmodels && python3 golden.py > golden.json
# The test `scipy` runs it with another seed, `golden.py SEED`.
import json
import sys

import numpy as np
import scipy
import statsmodels
from scipy import stats
from statsmodels.stats.multitest import multipletests

rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 20130125)


def interval(low, high):
    return {"low": float(low), "high": float(high)}


def summary(values):
    boot = stats.bootstrap((values,), np.mean, n_resamples=200_000, method="percentile", rng=rng, batch=10_000)
    q1, q3 = np.quantile(values, [0.25, 0.75])
    far = (values < q1 - 1.5 * (q3 - q1)) | (values > q3 + 1.5 * (q3 - q1))
    return {
        "values": values.tolist(), "min": float(values.min()), "max": float(values.max()),
        "mean": float(values.mean()), "stdev": float(values.std(ddof=1)), "median": float(np.median(values)),
        "p90": float(np.quantile(values, 0.9)), "bootstrap": interval(*boot.confidence_interval),
        "outliers": np.flatnonzero(far).tolist() if len(values) >= 5 else [],
    }


def paired(arm, base):
    result = stats.ttest_rel(np.log(arm), np.log(base))
    low, high = result.confidence_interval(0.95)
    d = np.log(arm) - np.log(base)
    return {
        "arm": arm.tolist(), "base": base.tolist(), "t": float(result.statistic), "p": float(result.pvalue),
        "freedom": float(result.df), "ratio": float(stats.gmean(arm) / stats.gmean(base)),
        "interval": interval(np.exp(low), np.exp(high)), "effect": float(d.mean() / d.std(ddof=1)),
    }


def welch(arm, base):
    a, b = np.log(arm), np.log(base)
    result = stats.ttest_ind(a, b, equal_var=False)
    low, high = result.confidence_interval(0.95)
    n, m = len(a), len(b)
    pooled = np.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / (n + m - 2))
    return {
        "arm": arm.tolist(), "base": base.tolist(), "t": float(result.statistic), "p": float(result.pvalue),
        "freedom": float(result.df), "ratio": float(stats.gmean(arm) / stats.gmean(base)),
        "interval": interval(np.exp(low), np.exp(high)),
        "effect": float((a.mean() - b.mean()) / pooled * (1 - 3 / (4 * (n + m) - 9))),
    }


def rates(n, mean, spread):
    return np.round(mean * np.exp(rng.normal(0, spread, n)), 3)


# The seed's ebizzy at 1x (mean and standard deviation of 8 runs), one number far off, two numbers, equal means.
base, patched = rng.normal(2421.9, 19.1801, 8).round(3), rng.normal(5883.1, 112.7243, 8).round(3)
far = np.append(rates(9, 1000, 0.02), 1500.0)
noisy = rates(8, 1000, 0.3)
ps = [rng.uniform(0, 0.06, n).round(6).tolist() for n in (1, 2, 5, 12)] + [[0.01, 0.01, 0.02, 0.9]]
print(json.dumps({
    "scipy": scipy.__version__, "numpy": np.__version__, "statsmodels": statsmodels.__version__,
    "summaries": [summary(v) for v in (base, patched, far, noisy, rates(2, 50, 0.1), rates(5, 1e7, 0.01))],
    "paired": [paired(patched, base), paired(noisy, noisy * rates(8, 1.1, 0.05)), paired(rates(3, 10, 0.2), rates(3, 10, 0.2))],
    "welch": [welch(patched, base), welch(rates(8, 100, 0.1), rates(5, 102, 0.3)), welch(rates(2, 5, 0.1), rates(4, 50, 0.5))],
    "holm": [{"p": p, "corrected": multipletests(p, method="holm")[1].tolist()} for p in ps],
}, indent=1))
