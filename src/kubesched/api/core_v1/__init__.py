"""The core group, `v1`: pods, nodes, volumes and related objects.

Re-exports the records of all modules here.
"""

# ruff: noqa: F403 - a list of a hundred names would only repeat the modules
from kubesched.api.core_v1.cluster import *
from kubesched.api.core_v1.node import *
from kubesched.api.core_v1.placement import *
from kubesched.api.core_v1.pod import *
from kubesched.api.core_v1.references import *
from kubesched.api.core_v1.storage import *
from kubesched.api.core_v1.volumes import *
