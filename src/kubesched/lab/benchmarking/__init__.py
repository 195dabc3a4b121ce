"""Measuring: workload files in scheduler_perf's vocabulary, run through the core alone or end to end.

workload_files   files to workloads: cases, parameters, operations
operations       what a workload does, and the objects it makes
templates        manifests with Go template actions
core_mode        workloads through the decision core, without any API
end_to_end       workloads against a control plane
results          what a run found; `table`, `plot` and `comparison` show it
call_counts      measures that do not depend on the machine, for continuous integration
"""
