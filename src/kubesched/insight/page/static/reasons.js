// The scheduler's message in words: how many nodes say what, the most telling reason first.

const WORDS = {
  "node(s) had untolerated taint(s)": "a taint that it does not tolerate",
  "node(s) were unschedulable": "cordoned",
  "node(s) didn't match Pod's node affinity/selector": "labels do not match its node selector or affinity",
  "node(s) didn't match scheduler-enforced node affinity": "labels do not match the profile's added affinity",
  "node(s) didn't match the requested node name": "not the node that it names",
  "node(s) didn't have free ports for the requested pod ports": "its host port is taken",
  "node(s) didn't match pod affinity rules": "no pod near that it wants to be with",
  "node(s) didn't match pod anti-affinity rules": "a pod near that it must not be with",
  "node(s) didn't satisfy existing pods anti-affinity rules": "a pod near that does not want it there",
  "node(s) didn't match pod topology spread constraints": "would be spread too unevenly",
  "node(s) didn't match pod topology spread constraints (missing required label)": "no label to spread by",
  "node(s) did not have enough free storage": "too little storage free",
  "node(s) didn't find available persistent volumes to bind": "no volume for its claim",
  "node(s) didn't match PersistentVolume's node affinity": "its volume is elsewhere",
  "node(s) had no available volume zone": "its volume is in another zone",
  "node(s) exceed max volume count": "no further volume can be attached",
  "Too many pods": "no room for another pod",
  "cannot allocate all claims": "no devices for its claims",
};

export function inWords(reason) {
  const lacks = /^Insufficient (.+)$/.exec(reason);
  return lacks ? `too little ${lacks[1]} free` : WORDS[reason] || reason.replace(/^node\(s\) /, "");
}

// "0/10 nodes are available: 3 Insufficient cpu, 7 node(s) were unschedulable. preemption: …" -> {total, reasons: [{nodes, text}]}, or null.
export function readMessage(message) {
  const match = /^0\/(\d+) nodes are available: (.*?)\.?( preemption: .*|$)/s.exec(message || "");
  if (!match) return null;
  const reasons = match[2].split(/, (?=\d+ )/).map((part) => /^(\d+) (.*)$/s.exec(part)).filter(Boolean)
    .map(([, nodes, text]) => ({ nodes: Number(nodes), text }));
  return { total: Number(match[1]), reasons: reasons.sort((a, b) => b.nodes - a.nodes) };
}

// One line that tells this pod from others: "10 of 10 nodes: too little cpu free".
export function sentence(message) {
  const read = readMessage(message);
  if (!read || !read.reasons.length) return message;
  return read.reasons.map(({ nodes, text }) => `${nodes} of ${read.total} nodes: ${inWords(text)}`).join("; ");
}
