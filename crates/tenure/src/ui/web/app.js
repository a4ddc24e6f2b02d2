// The frame: which page is shown, its news, keys, theme and help.

import { el, fill, link, route } from "./dom.js";
import { LISTS, showList } from "./lists.js";
import { ask, stream, takeToken } from "./live.js";
import { around, showMap, whoFacts } from "./map.js";
import { showNode } from "./node.js";
import { startSearch } from "./search.js";

const main = document.getElementById("content");
const health = document.getElementById("health");
const trouble = document.getElementById("trouble");
let shown;
let news;

function parts() {
  return location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

/** The address of a map. */
function mapRoute({ pool, kind, subnet, part, fine, at }) {
  return route("map", kind ?? "", pool, subnet ?? "", part ?? "", fine ? "fine" : "", at ?? "").replace(/\/+$/, "");
}

function open() {
  const [page = "", ...rest] = parts();
  shown?.close();
  news?.close();
  shown = news = undefined;
  for (const item of document.querySelectorAll("#nav a")) {
    const current = item.dataset.page === page || (page === "map" && item.dataset.page === "pools");
    if (current) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  document.title = `${rest[page === "map" ? 1 : 0] ?? LISTS[page]?.title ?? "Tenure"} – Tenure`;
  if (page === "map" && rest[1]) {
    const [kind, pool, subnet, part, fine, at] = rest;
    const place = { kind: kind || undefined, pool, subnet: subnet || undefined, part: part || undefined, fine: fine === "fine", at: at || undefined };
    const focused = document.activeElement?.classList.contains("board");
    shown = showMap(main, place, (to) => { location.hash = "#" + mapRoute(to); });
    if (focused || part) main.querySelector(".board").focus({ preventScroll: true });
  } else if (page === "nodes" && rest[0]) {
    shown = showNode(main, rest[0]);
  } else if (page === "address" && rest[0]) {
    showAddress(rest[0]);
    shown = { keys: {}, query: { page: "findings" }, hear: () => {}, close: () => {} };
  } else if (LISTS[page]) {
    shown = showList(main, page);
  } else {
    location.hash = "#/pools";
    return;
  }
  const page_ = shown;
  news = stream(shown.query, (kind, data) => kind === "summary" ? summarize(data) : page_.hear(kind, data), (state, status) => {
    if (state === "live") {
      page_.restart?.();
      trouble.hidden = true;
      return;
    }
    trouble.hidden = false;
    trouble.textContent = status === 401 ? "This page has no valid token. Open the address that `tenure ui` printed." : state;
    fill(health, el("span", { class: "dot bad" }), "not live");
  });
}

async function showAddress(address) {
  fill(main, el("div", { class: "title" }, el("h1", {}, el("span", { class: "name" }, address))), el("section", { class: "card" }, "Asking…"));
  const place = main.querySelector("section");
  try {
    const who = await ask("who", { address });
    const onMap = who.pool && link(mapRoute({ pool: who.pool, part: around(address), at: address }), "Show it on the map");
    fill(place, whoFacts(who), onMap ? el("p", {}, onMap) : null);
  } catch (error) {
    fill(place, error.message);
  }
}

function summarize(summary) {
  const bad = summary.failing.length > 0;
  const text = bad ? `${summary.failing.length} watches fail` : !summary.complete ? "reading…" : summary.silent ? `live; ${summary.silent} of ${summary.agents} agents silent` : "live";
  fill(health, el("span", { class: `dot ${bad ? "bad" : summary.complete && !summary.silent ? "good" : "unsure"}` }), text);
  health.title = bad ? summary.failing.join("\n") : "";
  const badge = document.querySelector("#nav [data-page=findings] .badge");
  const number = summary.findings ?? 0;
  badge.textContent = summary.findings === null ? "…" : number || (summary.unseen ? "?" : "✓");
  badge.className = `badge ${number ? "bad" : summary.findings === null || summary.unseen ? "unsure" : "good"}`;
  badge.title = summary.findings === null ? "not compared yet" : `${number} differences, ${summary.unseen} not seen`;
}

const THEMES = ["", "light", "dark"];
function theme(next) {
  const root = document.documentElement;
  const own = THEMES.indexOf(sessionStorage.getItem("theme") ?? "");
  const wanted = THEMES[(own + (next ? 1 : 0)) % THEMES.length];
  sessionStorage.setItem("theme", wanted);
  if (wanted) root.dataset.theme = wanted;
  else delete root.dataset.theme;
  document.getElementById("theme").textContent = wanted === "dark" ? "☾" : wanted === "light" ? "☀" : "◐";
  dispatchEvent(new Event("themechange"));
}

const HELP = [
  ["/", "search"], ["arrow keys", "move over the map"], ["+ or Enter", "zoom in at the cursor"], ["-", "zoom out"],
  ["0", "the whole network"], ["f", "everything in use"], ["d", "fewer or more cells"], ["b", "the map as a table"],
  ["Home, End, Page Up, Page Down", "to the edges of the map"], ["t", "light, dark, or as the system says"], ["g then p, n, c, e, a, l, f", "pools, nodes, claims, egresses, node addresses, aliases, findings"], ["?", "this help"],
];
const GO = { p: "pools", n: "nodes", c: "claims", e: "egresses", a: "node-addresses", l: "aliases", f: "findings" };

function help() {
  const dialog = document.getElementById("keys");
  fill(dialog, el("h2", { id: "keys-title" }, "Keys"), el("dl", {}, HELP.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
    el("p", { class: "quiet" }, "These pages show what the `tenure` command shows, with your own rights. They change nothing."),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
  dialog.showModal();
}

let going = false;
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (going) {
    going = false;
    if (GO[event.key]) location.hash = `#/${GO[event.key]}`;
    return;
  }
  const own = shown?.keys[event.key];
  const isButton = event.target.closest("button, a, summary") && (event.key === "Enter" || event.key === " ");
  if (event.key === "/") focusSearch();
  else if (event.key === "?") help();
  else if (event.key === "t") theme(true);
  else if (event.key === "g") going = true;
  else if (own && !isButton) own();
  else return;
  event.preventDefault();
}

takeToken();
fill(document.getElementById("nav"), Object.entries(LISTS).map(([page, { title }]) => {
  const item = link(route(page), title, page === "findings" ? el("span", { class: "badge unsure" }, "…") : null);
  item.dataset.page = page;
  return item;
}));
const focusSearch = startSearch();
document.getElementById("help").addEventListener("click", help);
document.getElementById("theme").addEventListener("click", () => theme(true));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
addEventListener("keydown", pressed);
addEventListener("hashchange", () => {
  takeToken();
  open();
});
theme(false);
open();
