"""A small Kubernetes control plane in one process.

Layers from top to bottom:

    cluster              a complete cluster, with certificates and a kubeconfig
    controller_manager   starts and runs controllers and kubelets
    controllers          the controllers of kube-controller-manager, and a volume provisioner
    kubelet              simulated nodes and their pods
    client               the in-process API; informers, work queues, events
    server               the API server, on a TLS socket or in process
    control_plane        builds a registry with the default objects of a cluster
    handlers             request handlers: paths, bodies, verbs, discovery, OpenAPI, tables
    auth                 authentication and authorization
    resources            each kind's defaults, admission and validation; custom resources
    registry             create, update, patch, apply, delete, bind, evict, scale
    storage              the revisioned store, watches, the journal on disk
    apimachinery         objects, the catalogue of kinds and their schema, selectors, errors

Objects are plain JSON dictionaries; fields unknown to the schema are kept. Objects in the
store are never changed in place: a write replaces an object and shares its unchanged parts.
"""
