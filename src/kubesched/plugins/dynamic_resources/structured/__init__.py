"""The structured allocator: which devices satisfy a pod's claims on one node. No I/O, no scheduler.

allocator        entry point: one `Allocator` per scheduling attempt, asked node by node
pools            which slices, and so which devices, a node can reach
node_pools       the pools of all nodes, kept between attempts, and which nodes are alike
allocated_state  devices, shares and capacity that are taken already
requests         a claim's requests, checked before the search
selectors        class and request selectors over devices (CEL)
capacity         consumable capacity: what a request consumes of a device
counters         counters that the devices of a pool share
taints           device taints and tolerations
constraints      matchAttribute and distinctAttribute
search           depth-first search for the first complete solution
results          the `AllocationResult` of a solution
features         optional parts, by feature gate
failures         how an allocation can end other than with devices or without

Mirrors `structured/internal/incubating` of k8s.io/dynamic-resource-allocation. The order of pools,
slices and devices is part of the contract: the first fit wins.
"""
