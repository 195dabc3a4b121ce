"""Preemption: making room for a pod by evicting less important ones.

    candidates   which nodes are worth a try, how many of them, and which of the results is best
    victims      whom to evict from one node, found by trying; and the same for many nodes at once
    budgets      which evictions PodDisruptionBudgets can spare
    evaluator    the steps from "fits nowhere" to "evict these", in order
    executor     carrying it out: conditions, deletions, events, nominations

Deciding is synchronous and changes nothing. Only the executor talks to the API server, through the handle's client.
"""
