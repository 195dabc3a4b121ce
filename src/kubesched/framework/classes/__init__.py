"""Pod classes: pods with the same scheduling-relevant spec share verdicts and scores.

Three ways lead to a decision, and to the same one; the tests compare them on random histories:

    plain     every plugin is asked about every node. The reference, and the only way for a pod without a class.
    columns   verdicts and raw scores that depend on one node alone are kept per class, as columns; what other plugins say,
              and normalisation, is computed for every pod over all nodes (`columns`).
    plan      everything a decision rests on is kept up to date, and nodes that all plugins treat alike are judged as
              one: the cost of a decision does not depend on the number of nodes (`plan`, `index`).

A class starts with columns and gets a plan when all plugins concerned can tell what their answers depend on.
"""

from kubesched.framework.classes.cache import ClassCache, KnownFailure, PodClass
from kubesched.framework.classes.columns import INFEASIBLE, ClassColumns
from kubesched.framework.classes.index import Unfit
from kubesched.framework.classes.plan import Plan
from kubesched.framework.classes.signature import class_signature

__all__ = [
    "INFEASIBLE",
    "ClassCache",
    "ClassColumns",
    "KnownFailure",
    "Plan",
    "PodClass",
    "Unfit",
    "class_signature",
]
