// Pages that are lists: rows that change one by one, and columns that say how each is shown.

import { ago, complaints, condition, count, el, fill, link, route } from "./dom.js";

const share = (part, whole) => {
  const [some, all] = [Number(part), Number(whole)];
  return all > 0 ? Math.max(some > 0 ? 0.5 : 0, Math.min(100, (100 * some) / all)) : 0;
};

/** How full a pool is, as a bar and in words. */
function usage(row) {
  const { size, used, cooling, free, unknownNodes } = row.addresses;
  if (!size) return "–";
  const mark = unknownNodes.length ? "+?" : "";
  const words = `${count(used)}${mark} used, ${count(cooling)}${mark} cooling, ${count(free)} free of ${count(size)}`;
  return el("div", { class: "usage" },
    el("div", { class: "bar", role: "img", "aria-label": words },
      el("span", { class: "used", width: `${share(used, size)}%` }), el("span", { class: "cools", width: `${share(cooling, size)}%` })),
    el("span", { class: "quiet" }, words));
}

const perNode = (blocks) => {
  const all = Object.entries(blocks).sort((one, other) => other[1] - one[1] || (one[0] < other[0] ? -1 : 1));
  const shown = all.slice(0, 4).flatMap(([node, number], at) => [at ? ", " : "", node.startsWith("(") ? node : link(route("nodes", node), node), ` ${number}`]);
  return all.length > 4 ? [...shown, `, ${all.length - 4} more`] : shown.length ? shown : "–";
};

const addressLink = (text) => link(route("address", text.split("/")[0]), text);
const list = (items) => items.flatMap((item, at) => [at ? ", " : "", item]);
const slot = (it) => it ? [it.pod, " on ", link(route("nodes", it.node), it.node)] : "–";
const conditions = (row) => [
  row.problem ? el("span", { class: "pill bad" }, "! ", row.problem) : null,
  ...(row.conditions ?? []).filter((it) => it.type === "Ready" || it.type === "Available" || it.type === "IPsAllocated" || it.status === "True").map(condition),
  ...complaints(row.conditions).map((text) => el("p", { class: "complaint" }, text)),
];

/** The lists: title, words for none, and columns. */
export const LISTS = {
  pools: {
    title: "Pools",
    none: "There are no pools.",
    columns: [
      ["Pool", (row) => [link(route("map", row.kind, row.name), el("strong", { class: "name" }, row.name)), el("div", { class: "quiet" }, row.kind)]],
      ["Networks", (row) => list(row.subnets.map((text) => link(route("map", row.kind, row.name, text), text)))],
      ["Addresses", usage],
      ["Blocks", (row) => row.blocks ? `${count(row.blocks.allocated)} of ${count(row.blocks.capacity)}` : "–"],
      ["Blocks per node", (row) => perNode(row.blocksPerNode)],
      ["Conditions", (row) => [conditions(row), row.addresses.unknownNodes.length ? el("p", { class: "complaint" }, `not counted: ${row.addresses.unknownNodes.slice(0, 5).join(", ")}`) : null]],
    ],
  },
  nodes: {
    title: "Nodes",
    none: "There are no nodes.",
    columns: [
      ["Node", (row) => link(route("nodes", row.node), el("strong", { class: "name" }, row.node))],
      ["State", (row) => row.ready === undefined ? el("span", { class: "pill unsure" }, "? unknown") : row.ready ? el("span", { class: "pill good" }, "✓ ready") : el("span", { class: "pill bad" }, "! not ready")],
      ["Blocks", (row) => row.blocks],
      ["Held", (row) => count(row.held)],
      ["Cooling", (row) => count(row.cooling)],
      ["Free", (row) => count(row.free)],
      ["Waiting", (row) => row.waiting],
      ["Problems", (row) => row.problems.length ? row.problems.slice(0, 3).map((text) => el("p", { class: "complaint" }, text)) : "–"],
    ],
  },
  claims: {
    title: "Claims",
    none: "There are no claims.",
    columns: [
      ["Claim", (row) => el("strong", { class: "name" }, `${row.namespace}/${row.name}`)],
      ["Network", (row) => [row.network, row.interface ? el("div", { class: "quiet" }, row.interface) : null]],
      ["Addresses", (row) => row.addresses.length ? list(row.addresses.map(addressLink)) : "–"],
      ["Active", (row) => slot(row.active)],
      ["Incoming", (row) => row.incoming ? [el("span", { class: "pill moving" }, "» moving"), " ", slot(row.incoming)] : "–"],
      ["Age", (row) => ago(row.created)],
      ["State", (row) => [row.deleting ? el("span", { class: "pill unsure" }, "deleting") : null, row.onRecord ? el("span", { class: "pill good" }, "✓ on record") : el("span", { class: "pill unsure" }, row.addresses.length ? "? not on record" : "… waits"), complaints(row.conditions).map((text) => el("p", { class: "complaint" }, text))]],
    ],
  },
  egresses: {
    title: "Egresses",
    none: "There are no egresses.",
    columns: [
      ["Egress", (row) => el("strong", { class: "name" }, `${row.namespace}/${row.name}`)],
      ["Destinations", (row) => row.destinations.join(", ")],
      ["Gateways", (row) => `${row.serving} of ${row.replicas} serve`],
      ["Addresses outside", (row) => row.addresses.length ? list(row.addresses.map(addressLink)) : "–"],
      ["Clients", (row) => row.clients.length ? el("details", {}, el("summary", {}, row.clients.length), el("ul", {}, row.clients.slice(0, 200).map((it) => el("li", {}, it.pod, " on ", link(route("nodes", it.node), it.node))))) : "0"],
      ["Conditions", conditions],
    ],
  },
  "node-addresses": {
    title: "Node addresses",
    none: "No node has an address of a NodeIPPool.",
    columns: [
      ["Address", (row) => addressLink(row.address)],
      ["Pool", (row) => link(route("map", "NodeIPPool", row.pool), row.pool)],
      ["Node", (row) => link(route("nodes", row.node), row.node)],
      ["Policy", (row) => row.policy],
      ["Interface", (row) => row.interface ?? el("span", { class: "pill unsure" }, "? not reported")],
      ["State", (row) => row.released ? el("span", { class: "pill unsure" }, "released") : el("span", { class: "pill good" }, "✓ held")],
      ["By", (row) => el("span", { class: "quiet" }, `${row.kind} ${row.object}`)],
    ],
  },
  aliases: {
    title: "Cloud aliases",
    none: "There are no alias addresses.",
    columns: [
      ["Range", (row) => row.range ? addressLink(row.range) : "–"],
      ["Pool", (row) => link(route("map", "IPPool.ipam.gcp-cni.cast.ai", row.pool), row.pool)],
      ["Node", (row) => link(route("nodes", row.node), row.node)],
      ["State", (row) => row.state ? el("span", { class: `pill ${row.state === "attached" ? "good" : "unsure"}` }, row.state === "attached" ? "✓ " : "… ", row.state) : "–"],
      ["Pods", (row) => row.pods.length > 1 ? [el("span", { class: "pill moving" }, "» moving"), " ", row.pods.join(" ⇄ ")] : row.pods.join(", ") || row.claim || "–"],
      ["Problem", (row) => row.problem ? el("p", { class: "complaint" }, row.problem) : "–"],
    ],
  },
  findings: {
    title: "Findings",
    none: "Nothing differs, as far as everything was compared.",
    columns: [
      ["Kind", (row) => el("span", { class: row.kind ? "pill bad" : "pill unsure" }, row.kind ? `! ${row.kind}` : "? not seen")],
      ["Subject", (row) => row.subject],
      ["Problem", (row) => row.problem ?? row.reason],
      ["What to do", (row) => row.advice ?? "–"],
    ],
  },
};

/** So many rows are on the page at once; the filter finds others. */
const SHOWN = 500;

/** Shows a list in an element, and what changes in it. */
export function showList(main, page) {
  const { title, none, columns } = LISTS[page];
  const rows = new Map();
  const lines = new Map();
  const body = el("tbody");
  const number = el("span", { class: "quiet" });
  const filter = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${title}`, maxlength: "256", on: { input: () => draw() } });
  const empty = el("p", { class: "empty" }, "Reading…");
  const table = el("table", { class: "list" }, el("thead", {}, el("tr", {}, columns.map(([name]) => el("th", { scope: "col" }, name)))), body);
  fill(main, el("div", { class: "title" }, el("h1", {}, title), number, filter), el("div", { class: "scroll" }, table), empty);
  table.hidden = true;
  let known = false;

  const line = (row) => el("tr", {}, columns.map(([name, show]) => el("td", { data: { label: name } }, el("div", {}, show(row)))));
  const fits = (row, words) => !words || JSON.stringify(row).toLowerCase().includes(words);

  function draw() {
    const words = filter.value.trim().toLowerCase();
    const keys = [...rows.keys()].sort().filter((key) => fits(rows.get(key), words));
    const shown = keys.slice(0, SHOWN);
    for (const [key, old] of lines) if (!rows.has(key)) {
      old.remove();
      lines.delete(key);
    }
    let before = body.firstChild;
    for (const key of shown) {
      if (!lines.has(key)) lines.set(key, line(rows.get(key)));
      const wanted = lines.get(key);
      if (wanted === before) before = before.nextSibling;
      else body.insertBefore(wanted, before);
    }
    while (before) {
      const next = before.nextSibling;
      before.remove();
      before = next;
    }
    table.hidden = shown.length === 0;
    empty.hidden = shown.length > 0;
    empty.textContent = !known ? "Reading…" : rows.size ? "None of them fits the filter." : none;
    number.textContent = keys.length > shown.length ? `${shown.length} of ${keys.length}` : known ? `${keys.length}` : "";
  }

  return {
    keys: {},
    query: { page },
    hear: (kind, news) => {
      if (kind !== "list") return;
      known = true;
      for (const [key, row] of news.set) {
        rows.set(key, row);
        const made = line(row);
        lines.get(key)?.replaceWith(made);
        lines.set(key, made);
      }
      for (const key of news.gone) rows.delete(key);
      draw();
    },
    restart: () => rows.clear(),
    close: () => {},
  };
}
