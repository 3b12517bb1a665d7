"""What every test shares: how hard Hypothesis tries, chosen by the variable HYPOTHESIS_PROFILE."""

import os

from capgraph.passes.planning import planner
from hypothesis import HealthCheck, settings

# The same examples on every run and machine, so that a red build is the change's own fault.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # says more of the machine than of the test
)
# Open-ended search: `make fuzz`. The seed of a round brings its failures back.
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Every plan that any test makes is checked by code that shares nothing with the planner.
planner.checks_plans = True
