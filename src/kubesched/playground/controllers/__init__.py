"""Controllers of kube-controller-manager that turn desired state into pods and volumes.

Each controller watches through informers, queues keys, and reconciles one key at a time
(`client.controller`). All run in the API server's process and use only `LocalApi`. Clock and random
generator are parameters, for manual time in tests and virtual time in simulation.
"""
