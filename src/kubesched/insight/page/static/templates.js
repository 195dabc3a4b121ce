// Examples to begin with, for the editor of what-if and for creating pods in the playground.

const container = (cpu, memory) => `      containers:
      - name: main
        image: example.com/app:1.0
        resources: {requests: {cpu: "${cpu}", memory: ${memory}}}`;

const deployment = (name, replicas, cpu, more = "") => `apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}}
spec:
  replicas: ${replicas}
  selector: {matchLabels: {app: ${name}}}
  template:
    metadata: {labels: {app: ${name}}}
    spec:
${container(cpu, "256Mi")}${more}
`;

export const TEMPLATES = {
  "one pod": `apiVersion: v1
kind: Pod
metadata: {name: single}
spec:
  containers:
  - name: main
    image: example.com/app:1.0
    resources: {requests: {cpu: 500m, memory: 256Mi}}
`,
  "10 replicas": deployment("extra", 10, "500m"),
  "spread over zones": deployment("spread", 9, "250m", `
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: spread}}`),
  "one per node": deployment("apart", 12, "100m", `
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector: {matchLabels: {app: apart}}`),
  "too large": `apiVersion: v1
kind: Pod
metadata: {name: too-large}
spec:
  containers:
  - name: main
    image: example.com/app:1.0
    resources: {requests: {cpu: "64"}}
`,
  "held by a gate": `apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  schedulingGates: [{name: example.com/quota}]
  containers:
  - name: main
    image: example.com/app:1.0
`,
};

export const WHAT_IF_ONLY = {
  "a new node": `apiVersion: v1
kind: Node
metadata:
  name: new-node
  labels: {topology.kubernetes.io/zone: zone-a}
status:
  allocatable: {cpu: "32", memory: 128Gi, pods: "110"}
`,
};

const configured = (type) => `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: ${type}, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}
`;

export const CONFIGURATIONS = {
  "fill nodes up (MostAllocated)": configured("MostAllocated"),
  "emptiest nodes first (LeastAllocated)": configured("LeastAllocated"),
};

WHAT_IF_ONLY["another configuration"] = `${configured("MostAllocated")}---
${deployment("extra", 10, "500m")}`;
WHAT_IF_ONLY["all changes"] = `apiVersion: kubesched/v1
kind: Changes
drain: [node-1]
scale: {deployment/demo/web: 10}
addNodes: {node-0: 2}
requests: {deployment/demo/worker: {cpu: 250m}}
`;
