"""Jobs: pods that are to succeed a number of times.

policies    what failures mean; completion indexes as Kubernetes writes them ("0-2,5")
planning    how many pods to run, and which
tracking    counting finished pods exactly once, across conflicts and restarts
controller  how many pods to run now, and when the Job is over
"""

from kubesched.playground.controllers.job.controller import JobController as JobController
