"""A small, honest Kubernetes control plane in one process.

    storage ── registry (verbs) ── handlers (HTTP) ── server ── TLS socket or memory transport
        resources ──┘    └── local ── controllers, kubelet (in process)

    handlers      requests into answers: paths, bodies, verbs, discovery, OpenAPI, tables
    registry      create, update, patch, apply, delete, bind, evict, scale
    resources     what is known about each kind: catalogue, defaults, admission, validation, schema
    storage       the revisioned store, watches, the journal on disk
    controllers   the controller manager's part, including the volume provisioner
    kubelet       simulated nodes and the pods on them
    cluster       all of it together, with certificates and a kubeconfig

Objects are plain JSON dictionaries; fields unknown to the schema are kept. An object that has entered the store is never
changed in place: a write replaces it and shares the unchanged parts.
"""
