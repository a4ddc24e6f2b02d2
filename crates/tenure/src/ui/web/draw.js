// Drawing cells. Every state has a colour, a pattern and a letter, so that none depends on colour alone; the colours are those that
// people with any kind of colour blindness tell apart (Okabe and Ito).

/** The states in the order of their numbers in a cell. */
export const STATES = [
  { name: "held", letter: "H", light: "#0072b2", dark: "#4aa8e0", pattern: "plain", text: "A pod, a container or a node has it." },
  { name: "claimed", letter: "C", light: "#a8447f", dark: "#df8fbb", pattern: "diamonds", text: "It belongs to a claim." },
  { name: "moving", letter: "M", light: "#c04d00", dark: "#f58a45", pattern: "arrows", text: "Its claim or pod moves to another node." },
  { name: "cooling", letter: "~", light: "#0f8a73", dark: "#35c7a4", pattern: "stripes", text: "It was freed and rests before it is assigned again." },
  { name: "reserved", letter: "R", light: "#b98500", dark: "#e6b422", pattern: "dots", text: "Nobody assigns it: reserved, promised, or in a fenced block." },
  { name: "excluded", letter: "×", light: "#6c7683", dark: "#8d99a8", pattern: "crosses", text: "Its pool excludes it." },
  { name: "unknown", letter: "?", light: "#3b4048", dark: "#c3cad3", pattern: "checks", text: "The agent that would know does not answer." },
];

/** What is no state of an address. */
export const PLAIN = [
  { name: "free", text: "Its node may assign it; the tint is the node's." },
  { name: "no owner", text: "It is in no block yet." },
];

const HUES = [215, 28, 145, 330, 55, 265, 180, 0, 95, 300, 240, 75];

/** Whether the page is dark now. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The tint of an owner: a node's by its number, or of claims and of several. */
export function tint(owner, dark) {
  if (owner === -3) return dark ? "#4a2f40" : "#f3d9e8";
  if (owner === -2) return dark ? "#3a4048" : "#d5dae0";
  if (owner < 0) return dark ? "#262c34" : "#e4e8ec";
  const hue = HUES[owner % HUES.length];
  const round = Math.floor(owner / HUES.length) % 3;
  return dark ? `hsl(${hue} 38% ${24 + 5 * round}%)` : `hsl(${hue} 62% ${86 - 6 * round}%)`;
}

/** Letters for a node, so that neighbours with similar tints differ. */
export function code(owner) {
  let text = "";
  for (let rest = owner; rest >= 0; rest = Math.floor(rest / 26) - 1) text = String.fromCharCode(65 + (rest % 26)) + text;
  return text;
}

/** The colours of a theme, and patterns for a canvas. */
export function palette(context, dark) {
  const fills = STATES.map((state) => pattern(context, state, dark));
  const plain = STATES.map((state) => (dark ? state.dark : state.light));
  return {
    dark,
    fills,
    plain,
    none: dark ? "#171b21" : "#f4f6f8",
    line: dark ? "#9aa6b4" : "#4a5563",
    text: dark ? "#eef2f6" : "#14181d",
    halo: dark ? "#0e1116" : "#ffffff",
    cursor: dark ? "#ffd84a" : "#d00000",
    numbers: plain.map(numbers),
    tints: new Map(),
  };
}

function pattern(context, state, dark) {
  const size = 8;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const draw = tile.getContext("2d");
  draw.fillStyle = dark ? state.dark : state.light;
  draw.fillRect(0, 0, size, size);
  const mark = dark ? "rgba(10,14,20,.8)" : "rgba(255,255,255,.92)";
  draw.fillStyle = draw.strokeStyle = mark;
  draw.lineWidth = 1.6;
  const lines = (...all) => {
    draw.beginPath();
    for (const [x, y, x2, y2] of all) {
      draw.moveTo(x, y);
      draw.lineTo(x2, y2);
    }
    draw.stroke();
  };
  if (state.pattern === "stripes") lines([-2, 6, 6, -2], [2, 10, 10, 2]);
  if (state.pattern === "crosses") {
    draw.lineWidth = 1;
    lines([0, 0, 8, 8], [8, 0, 0, 8]);
  }
  if (state.pattern === "arrows") lines([2, 1, 6, 4], [6, 4, 2, 7]);
  if (state.pattern === "dots") {
    draw.beginPath();
    draw.arc(4, 4, 1.9, 0, 7);
    draw.fill();
  }
  if (state.pattern === "diamonds") {
    draw.beginPath();
    draw.moveTo(4, 0.8);
    draw.lineTo(7.2, 4);
    draw.lineTo(4, 7.2);
    draw.lineTo(0.8, 4);
    draw.fill();
  }
  if (state.pattern === "checks") {
    draw.fillRect(0, 0, 4, 4);
    draw.fillRect(4, 4, 4, 4);
  }
  return context.createPattern(tile, "repeat");
}

function numbers(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A colour as numbers, of any that a canvas understands. */
function rgb(colour, colours) {
  const probe = (colours.probe ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true }));
  probe.fillStyle = colour;
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** How cells are laid out in an area of a page: columns and rows are powers of two, and cells about square. */
export function layout(cells, width, height) {
  let best;
  for (let columns = 1; columns <= cells; columns *= 2) {
    const rows = cells / columns;
    const [w, h] = [Math.min(width / columns, 64), Math.min(height / rows, 40)];
    // Between square and twice as wide; wide cells leave room for letters.
    const shape = Math.abs(Math.log2(w / h) - 0.4) - 0.4 * Math.log2(Math.min(w, h, 8));
    if (!best || shape < best.shape) best = { columns, rows, w, h, shape };
  }
  // Whole pixels where there is room, so that edges are sharp.
  if (best.w >= 4) best.w = Math.floor(best.w);
  if (best.h >= 4) best.h = Math.floor(best.h);
  return best;
}

/** Draws one cell of a grid. */
export function drawCell(context, grid, data, number, colours) {
  const x = (number % grid.columns) * grid.w;
  const y = Math.floor(number / grid.columns) * grid.h;
  const gap = grid.w >= 6 && grid.h >= 6 ? 1 : 0;
  const [w, h] = [grid.w - gap, grid.h - gap];
  context.fillStyle = data.carved[number] > 0 || data.owner[number] !== -1 ? tinted(data.owner[number], colours) : colours.none;
  context.fillRect(x, y, grid.w, grid.h);
  if (gap) {
    context.fillStyle = colours.halo;
    context.fillRect(x + w, y, 1, grid.h);
    context.fillRect(x, y + h, grid.w, 1);
  }
  const at = number * STATES.length;
  const fills = Math.min(w, h) >= 5 ? colours.fills : colours.plain;
  // A strip of the owner's tint stays, so that whose it is can be seen.
  const strip = data.bits === 0 && h >= 10 ? Math.max(2, Math.round(h / 6)) : 0;
  const top = h - strip;
  let used = 0;
  for (let state = 0; state < STATES.length; state += 1) {
    const share = data.counts[at + state] / data.size;
    if (share === 0) continue;
    const part = Math.min(top - used, data.bits === 0 ? top : Math.max(1, Math.round(share * top)));
    context.fillStyle = fills[state];
    context.fillRect(x, y + top - used - part, w, part);
    used += part;
  }
  if (data.bits === 0 && w >= 15 && h >= 15 && used > 0) letter(context, data, number, at, x + w / 2, y + top / 2, colours);
}

function letter(context, data, number, at, x, y, colours) {
  const state = STATES.findIndex((_, state) => data.counts[at + state] > 0);
  if (state < 0) return;
  context.font = "700 11px ui-monospace, monospace";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeStyle = colours.plain[state];
  context.strokeText(STATES[state].letter, x, y);
  context.fillStyle = colours.dark ? "#0a0e14" : "#ffffff";
  context.fillText(STATES[state].letter, x, y);
}

function tinted(owner, colours) {
  let found = colours.tints.get(owner);
  if (!found) colours.tints.set(owner, (found = tint(owner, colours.dark)));
  return found;
}

/** The colour of a cell of a few pixels: its owner's tint, mixed with its states by their shares. */
function mixed(data, number, colours) {
  const empty = data.carved[number] === 0 && data.owner[number] === -1;
  const owner = empty ? "none" : data.owner[number];
  colours.known ??= new Map();
  let found = colours.known.get(owner);
  if (!found) colours.known.set(owner, (found = rgb(empty ? colours.none : tinted(owner, colours), colours)));
  let [r, g, b] = found;
  const at = number * STATES.length;
  for (let state = 0; state < STATES.length; state += 1) {
    const some = data.counts[at + state];
    if (some === 0) continue;
    // A single address in a large cell can be seen, too.
    const share = Math.max(0.35, Math.min(1, some / data.size));
    const [red, green, blue] = colours.numbers[state];
    r += (red - r) * share;
    g += (green - g) * share;
    b += (blue - b) * share;
  }
  return [Math.round(r), Math.round(g), Math.round(b)];
}

/** Draws one cell of a few pixels. */
export function drawPixel(context, grid, data, number, colours) {
  context.fillStyle = `rgb(${mixed(data, number, colours).join(" ")})`;
  context.fillRect((number % grid.columns) * grid.w, Math.floor(number / grid.columns) * grid.h, grid.w, grid.h);
}

/** Draws all cells where one is only a few pixels: by pixels, which is fast for any number. */
export function drawPixels(context, grid, data, colours) {
  const { width, height } = context.canvas;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const scale = context.getTransform().a || 1;
  const cells = new Uint32Array(data.cells);
  for (let number = 0; number < data.cells; number += 1) {
    const [r, g, b] = mixed(data, number, colours);
    cells[number] = 0xff000000 | (b << 16) | (g << 8) | r;
  }
  const column = new Uint32Array(width);
  for (let x = 0; x < width; x += 1) column[x] = Math.min(grid.columns - 1, Math.floor(x / (grid.w * scale)));
  for (let y = 0; y < height; y += 1) {
    const row = Math.floor(y / (grid.h * scale));
    if (row >= grid.rows) break;
    const start = row * grid.columns;
    for (let x = 0; x < width; x += 1) pixels[y * width + x] = cells[start + column[x]];
  }
  context.putImageData(image, 0, 0);
}

/** A sample of a state for the legend. */
export function swatch(state, dark) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 32;
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  const colours = palette(context, dark);
  const number = STATES.indexOf(state);
  context.fillStyle = number >= 0 ? colours.fills[number] : state.name === "free" ? tint(0, dark) : colours.none;
  context.fillRect(0, 0, 16, 16);
  return canvas;
}
