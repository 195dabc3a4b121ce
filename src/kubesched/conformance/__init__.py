"""Agreement with kube-scheduler: recorded answers, our answers, and where the two differ.

recordings   the files: clusters, pods and what kube-scheduler decided about them
placements   our decision for one recorded pod, by the code that schedules in production
comparison   aspect by aspect, the one against the other
golden       whole files
generate     clusters and pods to record, or to compare two implementations on
"""
