"""Conformance with kube-scheduler: recorded answers, our answers, and their differences.

recordings   file format: clusters, pods and kube-scheduler's decisions about them
placements   our decision for one recorded pod, by the production code
comparison   compares two answers aspect by aspect
sequences    step-by-step changes to a cluster, with the decision at each step
extenders    answers of a recorded sequence's extenders
groups       recorded sequences of pod groups, in memory
player       plays the steps of a sequence and reads the decisions
replay       our decisions for a sequence, in memory
golden       evaluates whole files
generate     random clusters and pods (`generate`) and sequences (`generate_sequence`)
play, run    plays sequences on real control planes, to kube-scheduler and to this scheduler
"""
