"""The in-process API, and client-go's tools on top of it.

local         the verbs of the API, and subscriptions to changes
informers     shared, indexed views of objects
workqueue     keys to sync
controller    base class of controllers and kubelets
events        events about objects
"""
