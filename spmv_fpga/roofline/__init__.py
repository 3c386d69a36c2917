"""The extended roofline: time and energy of a product without a build.

`predict` says what each kernel would take for a matrix, `calibrate` makes a calibration
from a user's own runs, `paper` holds the published tables against the model.
"""

from __future__ import annotations

from .calibration import Calibration, Parameter, load_calibration
from .model import Prediction, Workload, energy_lines, predict_one, roofs
from .own_runs import calibrate
from .predict import PredictionSet, choose, predict

__all__ = [
    "Calibration",
    "Parameter",
    "Prediction",
    "PredictionSet",
    "Workload",
    "calibrate",
    "choose",
    "energy_lines",
    "load_calibration",
    "predict",
    "predict_one",
    "roofs",
]
