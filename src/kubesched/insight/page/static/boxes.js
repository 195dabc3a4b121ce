// A node as a box with its pods inside: the area of a pod is its share of the node, the empty part is room.
import { css } from "./dom.js";
import { natural, percent } from "./format.js";
import { COLOURS, ink, step } from "./scale.js";

const PALETTE = ["#9ec5fe", "#a3cfbb", "#ffe08a", "#f1aeb5", "#c5b3e6", "#ffcba4", "#9eeaf9"], REST = "#ced4da", INK = "#101418";
const known = new Map();

// Workloads keep their colour as long as the page is open.
export function colourOf(workload) {
  if (!known.has(workload)) known.set(workload, workload ? PALETTE[known.size] || REST : REST);
  return known.get(workload);
}

export function workloadsOf(placements) {
  const counts = new Map();
  for (const each of placements.pods) {
    const key = each.workload ? `${each.pod.split("/")[0]}/${each.workload}` : "";
    counts.set(key, (counts.get(key) || 0) + 1);
  }
  return counts;
}

export function workloadOf(pod) { return pod.workload ? `${pod.pod.split("/")[0]}/${pod.workload}` : ""; }

// Colours are given in the order of names, so that a reload gives the same ones.
export function legendOf(placements) {
  const named = [...workloadsOf(placements).keys()].filter(Boolean).sort(natural);
  const keys = named.filter((each) => colourOf(each) !== REST).map((each) => [colourOf(each), each]);
  return named.length > keys.length || workloadsOf(placements).has("") ? [...keys, [REST, "other pods"]] : keys;
}

export function byNode(placements) {
  const found = new Map(placements.nodes.map((each) => [each.name, []]));
  for (const each of placements.pods) found.get(each.node).push(each);
  return found;
}

const LEAST = 0.012, HEAD = 18;

// Boxes of the pods of a node within a rectangle: [{pod, x, y, w, h}].
export function podBoxes(pods, whole, resource, x, y, w, h) {
  const top = h >= 44 ? HEAD : Math.min(6, h / 6), pad = w >= 44 ? 3 : 1;
  const sized = pods.map((pod) => ({ pod, share: Math.max(LEAST, resource === "cpu" || resource === "memory" ? pod[resource] / whole : 1 / whole || 0) || LEAST }))
    .sort((a, b) => b.share - a.share || natural(a.pod.pod, b.pod.pod));
  const used = sized.reduce((sum, each) => sum + each.share, 0), room = h - top - 2 * pad;
  if (!sized.length || room <= 0 || w <= 2 * pad) return [];
  return squarified(sized, used, x + pad, y + top + pad, w - 2 * pad, room * Math.min(1, used));
}

// Rows of rectangles that are as square as possible (squarified treemap).
function squarified(items, total, x, y, w, h) {
  const boxes = [];
  let rest = items, left = total;
  while (rest.length) {
    const wide = w >= h, side = wide ? h : w, area = w * h / left;
    let count = 1, sum = rest[0].share, worst = ratio(rest, 1, sum, side, area);
    while (count < rest.length) {
      const next = ratio(rest, count + 1, sum + rest[count].share, side, area);
      if (next > worst) break;
      worst = next;
      sum += rest[count++].share;
    }
    const deep = sum * area / side;
    let at = 0;
    for (const { pod, share } of rest.slice(0, count)) {
      const long = share / sum * side;
      boxes.push(wide ? { pod, x, y: y + at, w: deep, h: long } : { pod, x: x + at, y, w: long, h: deep });
      at += long;
    }
    if (wide) { x += deep; w -= deep; } else { y += deep; h -= deep; }
    rest = rest.slice(count);
    left -= sum;
  }
  return boxes;
}

function ratio(items, count, sum, side, area) {
  const deep = sum * area / side, least = items[count - 1].share / sum * side, most = items[0].share / sum * side;
  return Math.max(deep / least, least / deep, most / deep, deep / most);
}

// node: {name, share, marks}; share < 0: the node has none of the resource.
export function drawNode(context, node, boxes, x, y, w, h) {
  const left = Math.round(x), top = Math.round(y), wide = Math.round(x + w) - left, tall = Math.round(y + h) - top;
  context.fillStyle = css("--raised");
  context.fillRect(left, top, wide, tall);
  const at = step(node.share), colour = node.share < 0 ? css("--none") : COLOURS[at], head = tall >= 44 ? HEAD : Math.min(6, tall / 6);
  context.fillStyle = colour;
  context.fillRect(left, top, wide, Math.round(head));
  for (const box of boxes) drawPod(context, box);
  context.strokeStyle = css("--line");
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, top + 0.5, wide - 1, tall - 1);
  if (head < HEAD || wide < 30) return;
  context.fillStyle = node.share < 0 ? css("--text") : ink(at);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  const full = node.share < 0 ? "" : percent(node.share, 1), room = context.measureText(full).width;
  context.fillText(clipped(context, node.name + (node.marks ? ` · ${node.marks}` : ""), wide - room - 14), left + 5, top + 13);
  if (wide > room + 40) context.fillText(full, left + wide - room - 5, top + 13);
}

function drawPod(context, { pod, x, y, w, h }) {
  const left = Math.round(x), top = Math.round(y), wide = Math.max(1, Math.round(x + w) - left - 1), tall = Math.max(1, Math.round(y + h) - top - 1);
  context.fillStyle = colourOf(workloadOf(pod));
  context.fillRect(left, top, wide, tall);
  if (wide < 40 || tall < 13) return;
  context.fillStyle = INK;
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  context.fillText(clipped(context, shortName(pod), wide - 6), left + 3, top + Math.min(11, tall - 3));
}

// Of a Deployment's pod, its name and what tells its pods apart.
function shortName({ pod, workload }) {
  const own = pod.slice(pod.indexOf("/") + 1), [kind, of] = workload.split("/");
  return kind === "Deployment" ? `${of} ${own.slice(own.lastIndexOf("-") + 1)}` : own;
}

export function clipped(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= room) low = middle; else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}
