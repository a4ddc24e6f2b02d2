// A node: its state, blocks, slices and holders, and what it waits for.

import { ago, bytes, count, el, fill, link, route } from "./dom.js";

const address = (text) => link(route("address", text.split("/")[0]), text);
const list = (items) => items.flatMap((item, at) => [at ? ", " : "", item]);
const holder = (it) => it.pod ? `${it.pod.namespace}/${it.pod.name}` : `container ${it.container} ${it.interface}`;

/** Sections: title, which field, and columns. */
const SECTIONS = [
  ["Pools", "pools", [["Pool", (it) => link(route("map", "AddressPool", it.name), it.name)], ["Blocks", (it) => it.blocks], ["Held", (it) => count(it.addresses.held)], ["Cooling", (it) => count(it.addresses.cooling)], ["Free", (it) => count(it.addresses.free)], ["Waiting", (it) => it.waiting], ["Problem", (it) => it.problem ?? "–"]]],
  ["Blocks", "blocks", [["Block", (it) => it.name], ["Networks", (it) => list(it.networks.map((net) => link(route("map", "", it.pool, "", net), net)))], ["Held", (it) => count(it.addresses.held)], ["Cooling", (it) => count(it.addresses.cooling)], ["Free", (it) => count(it.addresses.free)], ["State", (it) => it.fenced ? el("span", { class: "pill bad" }, "! fenced: ", it.fenced) : it.usable ? el("span", { class: "pill good" }, "✓ ok") : el("span", { class: "pill unsure" }, "not assigned from")]]],
  ["Slices", "slices", [["Pool", (it) => link(route("map", "NodeSlicePool", it.pool), it.pool)], ["Slice", (it) => it.slice], ["Used", (it) => count(it.used)], ["Free", (it) => count(it.free)], ["IPPool", (it) => it.ledger ?? "–"]]],
  ["Holders", "holds", [["Holder", (it) => el("strong", {}, holder(it))], ["Addresses", (it) => list(it.addresses.map(address))], ["Network", (it) => it.network], ["Claim", (it) => it.claim ? [it.claim.name, it.claim.reached ? "" : " (not reached)"] : "–"], ["Since", (it) => it.since ? ago(it.since) : "–"], ["Interface", (it) => it.hostInterface ?? "–"], ["Received", (it) => it.traffic ? bytes(it.traffic.receivedBytes) : "–"], ["Sent", (it) => it.traffic ? bytes(it.traffic.sentBytes) : "–"]]],
  ["Node addresses", "nodeAddresses", [["Policy", (it) => it.policy], ["Addresses", (it) => it.addresses.map((own) => `${own.interface} ${own.address}`).join(", ") || "–"], ["Problem", (it) => it.problem ?? "–"]]],
  ["Cooling", "cooling", [["Addresses", (it) => list(it.addresses.map(address))], ["Block", (it) => it.block], ["Until", (it) => it.until.slice(11, 19)], ["Last holder", (it) => it.last ? holder(it.last) : "–"]]],
  ["Waiting", "waiting", [["Who", holder], ["Pool", (it) => it.pool], ["Since", (it) => ago(it.since)]]],
];

/** Shows a node in an element, and what changes of it. */
export function showNode(main, name) {
  const known = {};
  const head = el("dl", { class: "facts" });
  const problems = el("div");
  const sections = new Map();
  const places = SECTIONS.map(([title, field, columns]) => {
    const body = el("tbody");
    const number = el("span", { class: "quiet" });
    const place = el("section", { hidden: true, "aria-label": title }, el("h2", {}, title, " ", number),
      el("div", { class: "scroll" }, el("table", { class: "list" }, el("thead", {}, el("tr", {}, columns.map(([text]) => el("th", { scope: "col" }, text)))), body)));
    sections.set(field, { place, body, number, columns });
    return place;
  });
  fill(main, el("div", { class: "title" }, el("h1", {}, "Node ", el("span", { class: "name" }, name)), link(route("nodes"), "All nodes")), head, problems, places);

  function draw(changed) {
    head.replaceChildren();
    const fact = (title, ...value) => value.some(Boolean) && head.append(el("dt", {}, title), el("dd", {}, value));
    fact("state", known.unreachable ? el("span", { class: "pill unsure" }, "? ", known.unreachable) : known.problem ? el("span", { class: "pill bad" }, "! ", known.problem) : known.ready ? el("span", { class: "pill good" }, "✓ assigns addresses") : known.missing ? "There is no such node." : "reads the existing holds");
    fact("agent", known.version && `${known.version}${known.started ? `, started ${ago(known.started)} ago` : ""}`);
    fact("journal", known.journal ? known.journal.problem ?? "works" : "");
    fact("API server", known.api?.answered ? `answered ${ago(known.api.answered)} ago` : "");
    fact("egress", known.egress && `${known.egress.datapath || "none"} (${known.egress.reason}); ${known.egress.clients} clients, ${known.egress.gateways} gateways, ${known.egress.failing} failing`);
    const kernel = known.kernel?.differences ?? [];
    const watches = (known.api?.watches ?? []).filter((it) => it.problem);
    fill(problems, [...kernel.map((it) => `kernel: ${it.subject}: ${it.problem}`), ...watches.map((it) => `${it.kind}: ${it.problem}`)].map((text) => el("p", { class: "complaint" }, text)));
    for (const [field, { place, body, number, columns }] of sections) {
      if (!changed.includes(field)) continue;
      const rows = known[field] ?? [];
      place.hidden = rows.length === 0;
      number.textContent = rows.length > 500 ? `500 of ${rows.length}` : rows.length;
      fill(body, rows.slice(0, 500).map((row) => el("tr", {}, columns.map(([label, show]) => el("td", { data: { label } }, el("div", {}, show(row)))))));
    }
  }

  return {
    keys: {},
    query: { page: "node", name },
    hear: (kind, news) => {
      if (kind !== "node") return;
      for (const [field, value] of Object.entries(news)) {
        if (value === null) delete known[field];
        else known[field] = value;
      }
      draw(Object.keys(news));
    },
    restart: () => Object.keys(known).forEach((field) => delete known[field]),
    close: () => {},
  };
}
