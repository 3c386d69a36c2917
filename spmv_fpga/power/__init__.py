"""Power sensors, traces and the energy of regions.

`Meter` records a sensor while marked regions run, `attribute` turns trace and regions into
joules, each with its error and a verdict on whether the sensor could resolve it.

Examples
--------
>>> integrate([0.0, 2.0], [10.0, 20.0], 0.0, 1.0)
12.5
"""

from __future__ import annotations

from .attribution import Attribution, RegionEnergy, attribute
from .integration import (
    Estimate,
    Estimator,
    WindowEnergy,
    inner_mean,
    integrate,
    verdict,
    window_energy,
)
from .meter import Meter
from .regions import (
    Region,
    Regions,
    read_region_marks,
    read_regions,
    write_regions,
)
from .sampler import Sampler
from .trace import Refresh, Trace, read_trace, write_trace

__all__ = [
    "Attribution",
    "Estimate",
    "Estimator",
    "Meter",
    "Refresh",
    "Region",
    "RegionEnergy",
    "Regions",
    "Sampler",
    "Trace",
    "WindowEnergy",
    "attribute",
    "inner_mean",
    "integrate",
    "read_region_marks",
    "read_regions",
    "read_trace",
    "verdict",
    "window_energy",
    "write_regions",
    "write_trace",
]
