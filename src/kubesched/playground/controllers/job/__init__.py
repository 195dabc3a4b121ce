"""Jobs: run pods until a number of them have succeeded.

policies    what failures mean; completion indexes in Kubernetes' notation ("0-2,5")
planning    how many pods to run, and which
tracking    counting finished pods exactly once, across conflicts and restarts
controller  how many pods to run now, and when the Job has finished
"""
