"""Plans placements, evictions and capacity: runs the scheduler over a state in virtual time.

| Module | What |
|---|---|
| `manifests`, `workloads` | object files; the control plane that creates pods from workloads |
| `capacity` | how many more replicas fit |
| `plan` | the plan; with `drain`, `existing_workloads`, `nodes`, `utilisation` |
| `stops` | why a pod fits nowhere, by zone |
"""
