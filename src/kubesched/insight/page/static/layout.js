// Where cells go: groups as blocks of a grid, side by side in lines that fit the width of the canvas.

// groups: [{title, members: Int32Array}] -> the same with x, y, columns, lines in cells, and the whole size in cells.
// ratio: height of a cell by its width, other than 1 if few nodes then fill the canvas better.
export function arrange(groups, canvasWidth, canvasHeight) {
  const aspect = Math.max(0.5, canvasWidth / canvasHeight), total = groups.reduce((sum, group) => sum + group.members.length, 0);
  // Room between blocks and for their titles, in cells of the size that fills the canvas.
  const cell = Math.sqrt(canvasWidth * canvasHeight / Math.max(1, total)), gap = 14 / cell, header = 26 / cell;
  let best = null;
  const side = Math.max(1, Math.sqrt(total * aspect));
  for (const wide of [0.8, 1, 1.25, 1.6, 2.2]) for (const tall of [0.5, 0.7, 1, 1.4, 2, 3]) {
    const made = flow(groups, Math.ceil(side * wide), tall, gap, header);
    const fit = Math.min(aspect / made.width, 1 / made.height);
    if (!best || fit > best.fit) best = { ...made, fit };
  }
  if (!best) return { groups: [], width: 1, height: 1, ratio: 1 };
  const wide = (canvasWidth - 16) / best.width, high = (canvasHeight - 16) / best.height;
  return { ...best, ratio: Math.min(wide, high) < 50 ? 1 : Math.max(0.5, Math.min(1.7, high / wide)) };
}

function flow(groups, limit, tall, gap, header) {
  const lines = [];
  const widest = Math.max(1, ...groups.map((group) => group.members.length));
  // Blocks of one line share a height, so that their edges align.
  const height = Math.max(1, Math.round(Math.sqrt(widest) * tall));
  let line = null;
  for (const group of groups) {
    const columns = Math.max(1, Math.min(limit, Math.ceil(group.members.length / height)));
    if (!line || line.width + columns > limit) lines.push(line = { blocks: [], width: 0 });
    line.blocks.push({ ...group, columns, x: line.width });
    line.width += columns + gap;
  }
  let y = 0, width = 1;
  const placed = [];
  for (const each of lines) {
    let deep = 0;
    for (const block of each.blocks) {
      block.lines = Math.ceil(block.members.length / block.columns);
      block.y = y + header;
      deep = Math.max(deep, block.lines);
      width = Math.max(width, block.x + block.columns);
      placed.push(block);
    }
    y += deep + header + gap;
  }
  return { groups: placed, width, height: Math.max(1, y - gap) };
}
