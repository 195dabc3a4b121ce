"""Plans placements, evictions and capacity: runs the scheduler over a state in virtual time.

| Module | What |
|---|---|
| `world` | a cluster in memory whose scheduler is the production one |
| `manifests`, `workloads` | object files; the control plane that creates pods from workloads |
| `capacity` | how many more replicas fit |
| `plan` | the plan; with `drain`, `budgets`, `replacements`, `deletion`, `nodes`, `utilisation` |
| `stops` | why a pod fits nowhere, by zone |
"""
