"""Benchmarks: scheduler_perf workload files, run through the core alone or end to end.

workload_files   parses files into workloads: cases, parameters, operations
operations       the operations of a workload, and the objects they create
templates        manifests with Go template actions
core_mode        runs workloads through the decision core, without an API server
end_to_end       runs workloads against a control plane
results          result records; `summary` compares them
"""
