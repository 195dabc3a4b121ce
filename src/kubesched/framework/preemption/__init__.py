"""Preemption: making room for a pod by evicting less important ones.

    evaluator        the steps from "fits nowhere" to "evict these pods", in order
    dry_run          evaluates nodes until there are enough candidates; kept per class
    victims          selects the victims on one node; `victim_columns` on many nodes at once
    candidates       compares candidates
    budgets          checks evictions against PodDisruptionBudgets
    executor         evicts: conditions, deletions, events, nominations

Only the executor has side effects. Mirrors upstream's `framework/preemption`.
"""
