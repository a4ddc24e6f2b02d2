// The search at the head of every page.

import { el, fill, route, say } from "./dom.js";
import { ask } from "./live.js";

const MARKS = { address: "IP", pod: "pod", node: "node", claim: "claim", mac: "MAC", pool: "pool", egress: "egress" };

/** Where something that was found is shown. */
function target(it) {
  if (it.address && it.kind !== "claim") return route("address", it.address);
  if (it.kind === "node") return route("nodes", it.name);
  if (it.kind === "pool") return route("map", it.detail.split(" ")[0], it.name);
  if (it.kind === "claim") return it.address ? route("address", it.address) : route("claims");
  return route(it.kind === "egress" ? "egresses" : "pools");
}

/** Makes the search work; returns what puts the cursor into it. */
export function startSearch() {
  const form = document.getElementById("search");
  const words = document.getElementById("words");
  const found = document.getElementById("found");
  let asked;
  let results = [];
  let chosen = -1;
  words.setAttribute("role", "combobox");
  words.setAttribute("aria-expanded", "false");
  found.setAttribute("role", "listbox");

  function show(all) {
    results = all;
    chosen = all.length ? 0 : -1;
    fill(found, all.length ? all.map((it, number) => el("li", { role: "option", id: `found-${number}`, on: { mousedown: (event) => { event.preventDefault(); go(number); } } },
      el("span", { class: "mark" }, MARKS[it.kind]), el("span", { class: "name" }, it.name), el("span", { class: "quiet" }, it.detail))) : el("li", { class: "quiet" }, "Nothing has such a name."));
    found.hidden = false;
    words.setAttribute("aria-expanded", "true");
    say(all.length ? `${all.length} found` : "Nothing found");
    mark();
  }

  function hide() {
    found.hidden = true;
    words.setAttribute("aria-expanded", "false");
    words.removeAttribute("aria-activedescendant");
  }

  function mark() {
    [...found.children].forEach((item, number) => item.setAttribute("aria-selected", String(number === chosen)));
    if (chosen >= 0) {
      words.setAttribute("aria-activedescendant", `found-${chosen}`);
      found.children[chosen].scrollIntoView({ block: "nearest" });
    }
  }

  function go(number) {
    const it = results[number];
    if (!it) return;
    hide();
    words.value = "";
    words.blur();
    location.hash = "#" + target(it);
  }

  words.addEventListener("input", () => {
    asked?.abort();
    const text = words.value.trim();
    if (!text) return hide();
    asked = new AbortController();
    const { signal } = asked;
    setTimeout(() => {
      if (!signal.aborted) ask("search", { q: text }, signal).then((all) => signal.aborted || show(all)).catch(() => {});
    }, 120);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (results.length) chosen = (chosen + (event.key === "ArrowDown" ? 1 : results.length - 1)) % results.length;
      mark();
    } else if (event.key === "Escape") {
      hide();
      words.blur();
    }
  });
  words.addEventListener("blur", hide);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!found.hidden && chosen >= 0) return go(chosen);
    const text = words.value.trim();
    if (text) ask("search", { q: text }).then((all) => { show(all); if (all.length === 1 || all[0]?.kind === "address") go(0); }).catch(() => {});
  });
  return () => { words.focus(); words.select(); };
}
