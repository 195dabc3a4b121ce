// Numbers with their units.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function amount(resource, value) {
  if (resource === "cpu") return `${trim(value / 1000)} ${value === 1000 ? "core" : "cores"}`;
  if (resource === "memory" || resource.includes("storage") || resource.startsWith("hugepages-")) return bytes(value);
  return String(value);
}

export function bytes(value) {
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < BINARY.length - 1) { value /= 1024; unit++; }
  return `${trim(value)} ${BINARY[unit]}`;
}

export function trim(value) {
  const text = Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function percent(part, whole) {
  return whole > 0 ? `${Math.round(100 * part / whole)} %` : "–";
}

export function count(value, one, many) {
  return `${number(value)} ${value === 1 ? one : many || one + "s"}`;
}

export function number(value) { return Number(value).toLocaleString("en"); }

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${trim(seconds * 1e3)} ms`;
  if (seconds < 120) return `${trim(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function time(seconds) {
  if (!seconds) return "–";
  const date = new Date(seconds * 1000);
  const day = date.toISOString().slice(0, 10), today = new Date().toISOString().slice(0, 10);
  const clock = date.toLocaleTimeString("en-GB");
  return day === today ? clock : `${day} ${clock}`;
}

// node-2 before node-10.
const collator = new Intl.Collator("en", { numeric: true });

export function natural(a, b) {
  return typeof a === "string" && typeof b === "string" ? collator.compare(a, b) : a < b ? -1 : a > b ? 1 : 0;
}

export function iso(seconds) { return seconds ? new Date(seconds * 1000).toISOString() : ""; }
