"""What would happen: placements, evictions and capacity, found by running the scheduler over a state in virtual time.

| Module | What |
|---|---|
| `world` | a cluster in memory whose scheduler is the production one |
| `manifests`, `workloads` | files of objects; the embedded control plane that turns workloads into pods |
| `capacity` | how many more replicas fit |
| `plan` | what would happen; with `drain`, `budgets`, `replacements`, `deletion`, `nodes`, `utilisation` |
| `stops` | why a pod fits nowhere, by zone |
"""
