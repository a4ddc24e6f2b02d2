// The map of a pool: a canvas of cells, a cursor, what is under it, a legend, and the same as a table.

import { el, fill, link, route, say, count } from "./dom.js";
import { ask } from "./live.js";
import { STATES, PLAIN, code, drawCell, drawPixel, drawPixels, isDark, layout, palette, swatch, tint } from "./draw.js";

/** How many cells at most: what can be told apart, or every address of a large pool. */
const FINE = [4096, 131072];
const RULER = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
/** Zooming goes by so many bits of the address. */
const STEP = 4;

/** Shows a map in an element; returns what ends it, and its keys. */
export function showMap(main, place, navigate) {
  const { pool, kind, subnet, part, fine, at } = place;
  performance.clearMeasures("tenure:first-map");
  const began = performance.now();
  let head;
  let data;
  let grid;
  let colours;
  let areas = [];
  let cursor = 0;
  let asked;
  let closed = false;
  const nodes = new Map();

  const cellsCanvas = el("canvas", { class: "cells", "aria-hidden": "true" });
  const overCanvas = el("canvas", { class: "over", "aria-hidden": "true" });
  const ruler = el("canvas", { class: "ruler", "aria-hidden": "true" });
  let rulerWidth = 0;
  const board = el("div", { class: "board", tabindex: "0", role: "application", "aria-roledescription": "map of addresses", "aria-describedby": "summary" }, cellsCanvas, overCanvas);
  const path = el("p", { class: "path" });
  const summary = el("p", { class: "summary", id: "summary" }, "Reading…");
  const under = el("section", { class: "card under", "aria-label": "Under the cursor" }, el("p", {}, "Move over the map, or press the arrow keys."));
  const legend = el("section", { class: "card legend", "aria-label": "Legend" });
  const owners = el("section", { class: "card owners", "aria-label": "Nodes in this part" });
  const table = el("div", { class: "scroll", hidden: true });
  const button = (text, title, call) => el("button", { type: "button", title, "aria-label": title, on: { click: call } }, text);
  const zoom = [
    button("−", "Zoom out (-)", () => keys["-"]()),
    button("+", "Zoom in at the cursor (+)", () => keys["+"]()),
    button("All", "The whole network (0)", () => keys["0"]()),
    button("In use", "The smallest part with everything in use (f)", () => keys.f()),
    button(fine ? "Coarse" : "Fine", "Fewer or more cells (d)", () => keys.d()),
    button("Table", "The same as a table (b)", () => keys.b()),
  ];
  const wrap = el("div", { class: "wrap" }, ruler, board);
  fill(main,
    el("div", { class: "title" }, el("h1", {}, "Pool ", el("span", { class: "name" }, pool)), el("div", { class: "buttons" }, zoom)),
    path, summary,
    el("div", { class: "split" }, el("div", { class: "left" }, wrap, table), el("div", { class: "right" }, under, legend, owners)));

  const open = (changes) => navigate({ pool, kind, subnet: head?.subnet ?? subnet, part, fine, ...changes });

  function receive(kindOfNews, news) {
    if (kindOfNews !== "map" || closed) return;
    const start = performance.now();
    for (const [number, name] of Object.entries(news.nodes)) nodes.set(Number(number), name);
    const first = news.part !== undefined;
    if (first) begin(news);
    const changed = apply(news.runs);
    if (news.areas) areas = news.areas;
    if (first) drawAll();
    else drawSome(changed);
    if (first || news.areas) drawOver();
    describe();
    if (first || changed.has(cursor)) lookUnder();
    // After it is on the screen.
    requestAnimationFrame(() => setTimeout(() => {
      if (first) performance.measure("tenure:first-map", { start: began, end: performance.now(), detail: { cells: data.cells } });
      else performance.measure("tenure:update", { start, end: performance.now(), detail: { cells: changed.size } });
      board.dataset.drawn = String(Number(board.dataset.drawn ?? 0) + 1);
    }));
  }

  function begin(news) {
    head = news;
    data = {
      cells: news.cells, bits: news.bits, size: 2 ** news.bits,
      owner: new Int32Array(news.cells).fill(-1),
      carved: new Float64Array(news.cells),
      counts: new Float64Array(news.cells * STATES.length),
      totals: new Float64Array(STATES.length), inBlocks: 0,
    };
    base = parse(news.part.split("/")[0]);
    cursor = 0;
    if (at) {
      const offset = (parse(at).bits - base.bits) >> BigInt(news.bits);
      if (offset >= 0n && offset < BigInt(news.cells)) cursor = Number(offset);
    }
    const [of] = [news.subnet];
    fill(path, link(route("pools"), "Pools"), " › ", crumbs(news).flatMap((it, number) => [number ? " › " : "", it]));
    board.setAttribute("aria-label", `Map of ${news.part}, part of ${of} of pool ${pool}; ${news.cells} cells of ${cellSize()}. Arrow keys move, plus and minus zoom.`);
    resize();
    drawLegend();
  }

  function crumbs(news) {
    const whole = Number(news.subnet.split("/")[1]);
    const own = Number(news.part.split("/")[1]);
    const steps = [];
    for (let length = whole; length < own; length += STEP) steps.push(network(base, length));
    return [...steps.map((text) => el("button", { type: "button", class: "crumb", on: { click: () => open({ part: text }) } }, text)),
      el("strong", {}, news.part)];
  }

  const cellSize = () => data.bits === 0 ? "one address" : data.bits < 20 ? `${2 ** data.bits} addresses` : `2^${data.bits} addresses`;
  let base;

  function apply(runs) {
    const changed = new Set();
    const several = STATES.length;
    for (const run of runs) {
      const [start, length, owner, carved] = run;
      for (let number = start; number < start + length; number += 1) {
        changed.add(number);
        data.inBlocks += (carved ?? 0) - data.carved[number];
        data.owner[number] = owner;
        data.carved[number] = carved ?? 0;
        for (let state = 0; state < several; state += 1) {
          const some = run[4 + state] ?? 0;
          data.totals[state] += some - data.counts[number * several + state];
          data.counts[number * several + state] = some;
        }
      }
    }
    return changed;
  }

  function resize() {
    if (!data) return;
    const whole = Math.max(240, wrap.clientWidth - 6);
    const measure = ruler.getContext("2d");
    measure.font = RULER;
    const last = text({ ...base, bits: base.bits + (BigInt(data.cells - 1) << BigInt(data.bits)) });
    rulerWidth = wrap.clientWidth < 700 ? 0 : Math.ceil(measure.measureText(last).width) + 14;
    const width = whole - rulerWidth;
    const height = Math.max(260, Math.min(innerHeight - wrap.getBoundingClientRect().top - scrollY - 28, 900));
    grid = layout(data.cells, width, height);
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [across, h] = [Math.ceil(grid.w * grid.columns), Math.ceil(grid.h * grid.rows)];
    for (const [canvas, w] of [[cellsCanvas, across], [overCanvas, across], [ruler, rulerWidth]]) {
      canvas.width = Math.max(1, Math.round(w * ratio));
      canvas.height = Math.round(h * ratio);
      canvas.style.width = `${w}px`;
      canvas.style.height = `${h}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    board.style.width = `${across}px`;
    board.style.height = `${h}px`;
    colours = palette(cellsCanvas.getContext("2d"), isDark());
    drawRuler();
  }

  const tiny = () => grid.w < 4 || grid.h < 4;

  function drawAll() {
    const context = cellsCanvas.getContext("2d");
    if (tiny()) return drawPixels(context, grid, data, colours);
    for (let number = 0; number < data.cells; number += 1) drawCell(context, grid, data, number, colours);
  }

  function drawSome(changed) {
    if (tiny() && changed.size > 4096) return drawAll();
    const context = cellsCanvas.getContext("2d");
    const draw = tiny() ? drawPixel : drawCell;
    for (const number of changed) draw(context, grid, data, number, colours);
  }

  function drawOver() {
    const context = overCanvas.getContext("2d");
    context.clearRect(0, 0, overCanvas.width, overCanvas.height);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    if (!tiny() && areas.length <= 1024) {
      for (const area of areas) if (area.last > area.first || data.bits === 0) outline(context, area);
      for (const area of areas) name(context, area);
    }
    drawCursor(context);
  }

  /** The parts of an area: in its first row, in whole rows, in its last row. */
  function outline(context, area) {
    const { columns, w, h } = grid;
    const [top, bottom] = [Math.floor(area.first / columns), Math.floor(area.last / columns)];
    const [left, right] = [area.first % columns, (area.last % columns) + 1];
    const line = (x, y, x2, y2) => {
      context.moveTo(x * w + 0.5 - (x === columns ? 1 : 0), y * h + 0.5);
      context.lineTo(x2 * w + 0.5 - (x2 === columns ? 1 : 0), y2 * h + 0.5);
    };
    context.beginPath();
    line(left, top, left, top + 1);
    line(left, top, top === bottom ? right : columns, top);
    line(right, bottom, right, bottom + 1);
    line(top === bottom ? left : 0, bottom + 1, right, bottom + 1);
    if (bottom > top) {
      line(0, top + 1, left, top + 1);
      line(right, bottom, columns, bottom);
    }
    context.stroke();
  }

  /** The node's letters in the corner of its first cell, where they hide nothing. */
  function name(context, area) {
    const { columns, w, h } = grid;
    if (w < 20 || h < 15) return;
    const text = area.kind === "claims" ? "c" : area.node === null || area.node === undefined ? "–" : code(area.node);
    const [x, y] = [(area.first % columns) * w, Math.floor(area.first / columns) * h];
    context.font = "700 9px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "left";
    context.fillStyle = colours.halo;
    context.fillRect(x + 1, y + 1, context.measureText(text).width + 3, 9);
    context.fillStyle = colours.text;
    context.fillText(text, x + 2, y + 1.5);
  }

  /** The first addresses of rows, beside the map where there is room. */
  function drawRuler() {
    ruler.hidden = wrap.clientWidth < 700;
    if (ruler.hidden) return;
    const context = ruler.getContext("2d");
    context.clearRect(0, 0, ruler.width, ruler.height);
    context.font = RULER;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = colours.text;
    const every = 2 ** Math.max(0, Math.ceil(Math.log2(13 / grid.h)));
    for (let row = 0; row < grid.rows; row += every) {
      const first = base.bits + (BigInt(row * grid.columns) << BigInt(data.bits));
      context.fillText(text({ ...base, bits: first }), rulerWidth - 6, Math.max(6, (row + 0.5) * grid.h));
    }
  }

  function drawCursor(context) {
    const x = (cursor % grid.columns) * grid.w;
    const y = Math.floor(cursor / grid.columns) * grid.h;
    const [w, h] = [Math.max(grid.w, 6), Math.max(grid.h, 6)];
    context.strokeStyle = colours.halo;
    context.lineWidth = 4;
    context.strokeRect(x - 0.5, y - 0.5, w, h);
    context.strokeStyle = colours.cursor;
    context.lineWidth = 2;
    context.strokeRect(x - 0.5, y - 0.5, w, h);
  }

  function drawLegend() {
    const dark = isDark();
    const sample = (state) => el("li", { title: state.text }, swatch(state, dark), el("span", {}, state.name, state.letter ? el("kbd", {}, state.letter) : null), el("span", { class: "number", data: { state: state.name } }));
    fill(legend, el("h2", {}, "States"), el("ul", {}, [...STATES, ...PLAIN].map(sample)));
  }

  /** What the map says, in words and numbers. */
  function describe() {
    const some = STATES.map((state, number) => [state.name, data.totals[number]]);
    const busy = some.reduce((sum, [state, number]) => sum + (state === "excluded" ? 0 : number), 0);
    const free = Math.max(0, data.inBlocks - busy);
    const words = [...some.filter(([, number]) => number > 0), ["free in blocks", free]].map(([state, number]) => `${whole(number)} ${state}`);
    fill(summary, `${head.part}: ${words.join(", ")}. `, el("span", { class: "quiet" }, `A cell is ${cellSize()}.`));
    for (const item of legend.querySelectorAll("[data-state]")) {
      const found = some.find(([state]) => state === item.dataset.state);
      const number = found ? found[1] : item.dataset.state === "free" ? free : data.size * data.cells - data.inBlocks;
      const text = whole(Math.max(0, number));
      if (item.textContent !== text) item.textContent = text;
    }
    const seen = new Map();
    for (const area of areas) if (area.node !== null && area.node !== undefined) seen.set(area.node, (seen.get(area.node) ?? 0) + 1);
    const listed = [...seen].sort((one, other) => other[1] - one[1] || one[0] - other[0]).slice(0, 12);
    const key = listed.join("|");
    if (owners.dataset.key !== key || !owners.firstChild) {
      owners.dataset.key = key;
      owners.hidden = listed.length === 0;
      const chip = (node) => {
        const made = el("span", { class: "chip" }, code(node));
        made.style.backgroundColor = tint(node, isDark());
        return made;
      };
      fill(owners, el("h2", {}, "Nodes here"), el("ul", {}, listed.map(([node, number]) => el("li", {}, chip(node), link(route("nodes", nodes.get(node) ?? ""), nodes.get(node) ?? "?"), el("span", { class: "number" }, `${number}`)))),
        seen.size > listed.length ? el("p", { class: "quiet" }, `and ${seen.size - listed.length} more`) : null);
    }
    if (!table.hidden) drawTable();
  }

  const whole = (number) => number < 2 ** 53 ? count(Math.round(number)) : `2^${Math.round(Math.log2(number))}`;

  function drawTable() {
    const rows = [];
    for (let number = 0; number < data.cells && rows.length < 500; number += 1) {
      const states = STATES.map((state, index) => [state.name, data.counts[number * STATES.length + index]]).filter(([, some]) => some > 0);
      if (!states.length) continue;
      rows.push(el("tr", {}, el("th", { scope: "row" }, cellName(number)), el("td", {}, ownerName(number)), el("td", {}, states.map(([state, some]) => data.bits ? `${whole(some)} ${state}` : state).join(", "))));
    }
    fill(table, el("table", {}, el("caption", {}, `Cells in which anything is used${rows.length === 500 ? ", the first 500" : ""}`),
      el("thead", {}, el("tr", {}, ["Cell", "Owner", "State"].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows)));
  }

  const ownerName = (number) => {
    const owner = data.owner[number];
    if (owner >= 0) return nodes.get(owner) ?? "?";
    return owner === -2 ? "several nodes" : owner === -3 ? "claims" : data.carved[number] > 0 ? "reserved" : "no block";
  };
  const cellName = (number) => network({ ...base, bits: base.bits + (BigInt(number) << BigInt(data.bits)) }, base.length - data.bits);

  function lookUnder() {
    asked?.abort();
    const number = cursor;
    const title = data.bits === 0 ? cellName(number).split("/")[0] : cellName(number);
    const at = number * STATES.length;
    const states = STATES.map((state, index) => [state, data.counts[at + index]]).filter(([, some]) => some > 0);
    const text = states.map(([state, some]) => data.bits ? `${whole(some)} ${state.name}` : state.name).join(", ");
    const state = text || (data.carved[number] > 0 ? "free" : "in no block");
    say(`${title}, ${state}, ${ownerName(number)}`);
    const here = areas.filter((area) => area.first <= number && number <= area.last).slice(0, 3);
    const facts = el("dl", {});
    const fact = (name, value) => facts.append(el("dt", {}, name), el("dd", {}, value));
    fact("state", state);
    fact("owner", data.owner[number] >= 0 ? link(route("nodes", ownerName(number)), ownerName(number)) : ownerName(number));
    if (here.length) fact("block", here.map((area) => area.name).join(", "));
    fill(under, el("h2", {}, title), facts, data.bits > 0 ? el("p", { class: "quiet" }, "Enter or a double click zooms in.") : el("p", { class: "who" }));
    if (data.bits > 0) return;
    asked = new AbortController();
    ask("who", { address: title }, asked.signal).then((who) => {
      if (number === cursor && !closed) fill(under, el("h2", {}, title), whoFacts(who));
    }).catch(() => {});
  }

  function moveTo(number) {
    if (!data || number < 0 || number >= data.cells || number === cursor) return;
    cursor = number;
    drawOver();
    lookUnder();
  }

  const zoomTo = (length) => {
    const whole = Number(head.subnet.split("/")[1]);
    const own = Number(head.part.split("/")[1]);
    const wanted = Math.max(whole, Math.min(base.length, length));
    if (wanted === own) return say(wanted === whole ? "This is the whole network." : "A cell is one address.");
    const first = { ...base, bits: base.bits + (BigInt(cursor) << BigInt(data.bits)) };
    open({ part: network(first, wanted), at: text(first) });
  };
  const keys = {
    ArrowLeft: () => moveTo(cursor - 1),
    ArrowRight: () => moveTo(cursor + 1),
    ArrowUp: () => moveTo(cursor - grid.columns),
    ArrowDown: () => moveTo(cursor + grid.columns),
    Home: () => moveTo(cursor - (cursor % grid.columns)),
    End: () => moveTo(cursor - (cursor % grid.columns) + grid.columns - 1),
    PageUp: () => moveTo(cursor % grid.columns),
    PageDown: () => moveTo(data.cells - grid.columns + (cursor % grid.columns)),
    "+": () => head && zoomIn(),
    "=": () => head && zoomIn(),
    Enter: () => head && zoomIn(),
    "-": () => head && zoomTo(Number(head.part.split("/")[1]) - STEP),
    "0": () => head && open({ part: head.subnet }),
    f: () => head && open({ part: undefined }),
    d: () => head && open({ fine: !fine, part: head.part }),
    b: () => {
      table.hidden = !table.hidden;
      if (!table.hidden && data) drawTable();
    },
  };
  const zoomIn = () => data.cells > 16 ? zoomTo(Number(head.part.split("/")[1]) + STEP) : say("This is the closest look.");

  const numberAt = (event) => {
    const box = board.getBoundingClientRect();
    const [column, row] = [Math.floor((event.clientX - box.left) / grid.w), Math.floor((event.clientY - box.top) / grid.h)];
    return column >= 0 && column < grid.columns && row >= 0 && row < grid.rows ? row * grid.columns + column : -1;
  };
  board.addEventListener("pointermove", (event) => data && event.pointerType === "mouse" && moveTo(numberAt(event)));
  board.addEventListener("click", (event) => {
    if (!data) return;
    board.focus({ preventScroll: true });
    moveTo(numberAt(event));
  });
  board.addEventListener("dblclick", () => head && zoomIn());

  const redraw = () => {
    if (!data) return;
    resize();
    drawAll();
    drawOver();
    drawLegend();
    owners.dataset.key = "";
    describe();
  };
  let width = innerWidth;
  const resized = () => {
    if (innerWidth === width && !tiny()) return;
    width = innerWidth;
    redraw();
  };
  addEventListener("resize", resized);
  addEventListener("themechange", redraw);
  const query = { page: "map", pool, kind, subnet, part, cells: FINE[fine ? 1 : 0] };
  return {
    keys,
    query,
    hear: receive,
    close: () => {
      closed = true;
      asked?.abort();
      removeEventListener("resize", resized);
      removeEventListener("themechange", redraw);
    },
  };
}

/** Everything about one address, as `tenure who` says it. */
export function whoFacts(who) {
  const facts = el("dl", {});
  const fact = (name, ...value) => value.some((it) => it) && facts.append(el("dt", {}, name), el("dd", {}, value));
  fact("pod", who.holder?.pod && `${who.holder.pod.namespace}/${who.holder.pod.name}`);
  fact("claim", who.claim);
  fact("active pod", who.active && `${who.active.pod} on ${who.active.node}`);
  fact("other pod", who.other && `${who.other.pod} on ${who.other.node}`);
  fact("interface", who.holder && `${who.holder.interface} of container ${who.holder.container}, network ${who.holder.network}`);
  fact("host side", who.hostInterface);
  fact("node", who.node && link(route("nodes", who.node), who.node));
  fact("block", who.block);
  fact("pool", who.pool);
  fact("since", who.since && `${who.since.slice(0, 19)}Z`);
  fact("with", (who.addresses ?? []).filter((it) => it !== who.address).join(", "));
  fact("last holder", who.last && (who.last.pod ? `${who.last.pod.namespace}/${who.last.pod.name}` : `container ${who.last.container}`));
  fact("cools until", who.until && `${who.until.slice(0, 19)}Z`);
  fact("status of pods", (who.pods ?? []).join(", "));
  return [el("p", { class: "sentence" }, who.summary), facts];
}

/** An address as a number. */
export function parse(address) {
  if (!address.includes(":")) {
    return { length: 32, bits: address.split(".").reduce((bits, part) => (bits << 8n) | BigInt(part), 0n) };
  }
  const [head, tail] = address.split("::");
  const groups = (text) => (text ? text.split(":") : []);
  const [before, after] = [groups(head), groups(tail)];
  const zeros = tail === undefined ? [] : new Array(8 - before.length - after.length).fill("0");
  return { length: 128, bits: [...before, ...zeros, ...after].reduce((bits, part) => (bits << 16n) | BigInt(`0x${part}`), 0n) };
}

/** A number as an address. */
export function text({ length, bits }) {
  if (length === 32) return [24n, 16n, 8n, 0n].map((shift) => (bits >> shift) & 255n).join(".");
  const groups = Array.from({ length: 8 }, (_, number) => ((bits >> BigInt(112 - 16 * number)) & 0xffffn).toString(16));
  let best = { start: -1, length: 1 };
  for (let start = 0; start < 8; start += 1) {
    let run = 0;
    while (start + run < 8 && groups[start + run] === "0") run += 1;
    if (run > best.length) best = { start, length: run };
  }
  if (best.start < 0) return groups.join(":");
  return `${groups.slice(0, best.start).join(":")}::${groups.slice(best.start + best.length).join(":")}`;
}

/** The network of a length that has an address. */
function network(address, length) {
  const host = BigInt(address.length - length);
  return `${text({ ...address, bits: (address.bits >> host) << host })}/${length}`;
}

/** The network of 256 addresses that has an address. */
export function around(address) {
  const parsed = parse(address);
  return network(parsed, parsed.length - 8);
}
