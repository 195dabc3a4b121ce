"""Trimaran: plugins that score nodes by measured load.

Enable one of them per profile: their aims differ. All read the same metrics (`metrics`), which a
thread fetches beside the scheduler's loop.
"""

from kubesched_plugins.trimaran.load_variation_risk_balancing import LoadVariationRiskBalancing
from kubesched_plugins.trimaran.low_risk_over_commitment import LowRiskOverCommitment
from kubesched_plugins.trimaran.target_load_packing import TargetLoadPacking

__all__ = ["LoadVariationRiskBalancing", "LowRiskOverCommitment", "TargetLoadPacking"]
