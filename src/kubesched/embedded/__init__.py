"""A small, honest Kubernetes control plane in one process.

    store ── local (verbs, admission, defaults, validation) ── server (HTTP grammar) ── aiohttp or memory transport
                 └── controllers, kubelets (in process, through `LocalApi`)

Objects are plain JSON dictionaries: whatever a client sent is kept, known to us or not. An object that has entered
the store is never changed in place; a write replaces it and shares the parts that stayed the same.
"""
