"""A small, honest Kubernetes control plane in one process.

Layers from top to bottom:

    cluster              all of it together, with certificates and a kubeconfig
    controller_manager   starts controllers and kubelets, and runs them
    controllers          kube-controller-manager's part, with the volume provisioner
    kubelet              simulated nodes and the pods on them
    client               the API in process; informers, work queues, events
    server               the API server, on a TLS socket or in process
    control_plane        a registry with everything that makes it a cluster
    handlers             requests into answers: paths, bodies, verbs, discovery, OpenAPI, tables
    auth                 who a request is from, and what it may do
    resources            each kind's defaults, admission and validation; custom resources
    registry             create, update, patch, apply, delete, bind, evict, scale
    storage              the revisioned store, watches, the journal on disk
    apimachinery         objects, the catalogue of kinds and their schema, selectors, refusals

Objects are plain JSON dictionaries; fields unknown to the schema are kept. An object that has
entered the store is never changed in place: a write replaces it and shares the unchanged parts.
"""
