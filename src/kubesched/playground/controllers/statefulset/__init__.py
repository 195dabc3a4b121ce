"""StatefulSets: pods with a name, a place in line and storage of their own.

identity    which pod stands at which ordinal, and what it must look like
claims      the volume claims of each pod, and who keeps them
controller  the order in which pods come, go and are replaced
"""

from kubesched.playground.controllers.statefulset.controller import (
    StatefulSetController as StatefulSetController,
)
