// Reads what columns.py packs: a JSON header and typed arrays, without copying.

const TYPES = { Uint8: Uint8Array, Int16: Int16Array, Int32: Int32Array, Uint32: Uint32Array, Float64: Float64Array };
const decoder = new TextDecoder();

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(decoder.decode(new Uint8Array(buffer, 4, length)));
  const columns = {};
  for (const each of header.columns) columns[each.name] = new TYPES[each.type](buffer, 4 + length + each.at, each.length);
  return { header, columns };
}

export function texts(bytes) {
  const all = decoder.decode(bytes).split("\0");
  all.pop();
  return all;
}
