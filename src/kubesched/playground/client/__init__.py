"""The API for code in the same process, and what is built on it, as client-go is.

local         the verbs of the API, and subscriptions to changes
informers     shared, indexed views of objects
workqueue     keys that need a look
controller    the frame in which controllers and kubelets run
events        events about objects
"""
