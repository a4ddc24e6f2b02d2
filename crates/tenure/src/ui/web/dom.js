// Elements from data. Text is only ever text: nothing here makes markup of a string.

/** An element with properties and children; strings become text. */
export function el(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = value;
    else if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (key === "data") Object.assign(made.dataset, value);
    else if (key === "width") made.style.width = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces everything in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/** A link to a page of ours. */
export function link(route, ...children) {
  return el("a", { href: "#" + route }, children);
}

/** A route with its parts written so that any name fits. */
export function route(page, ...parts) {
  return "/" + [page, ...parts.map((part) => encodeURIComponent(part))].join("/");
}

/** Says something to people who do not see the screen. */
export function say(text) {
  const said = document.getElementById("said");
  if (said.textContent !== text) said.textContent = text;
}

/** A number with separators; large ones short. Decimal strings are allowed, because some are larger than any number here. */
export function count(value) {
  const text = String(value ?? "");
  if (!/^\d+$/.test(text)) return text;
  if (text.length <= 9) return text.replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const power = text.length - 1;
  return `${text[0]}.${text[1]} × 10${[...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
}

/** The age of a moment. */
export function ago(text) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(text)) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Bytes for people. */
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (number >= 10240 && unit + 1 < units.length) {
    number /= 1024;
    unit += 1;
  }
  return `${Math.floor(number)} ${units[unit]}`;
}

/** A condition: its type, and colour, sign and word for whether that is good. */
export function condition(it) {
  // Of these, True is bad.
  const bad = /^(Exhausted|Overlap|Conflict|Invalid|Degraded|PoolMissing|Failing|NodesWithoutSlice|Unusable)/.test(it.type);
  const good = it.status === "True" ? !bad : it.status === "False" ? bad : undefined;
  const sign = good === undefined ? "?" : good ? "✓" : "!";
  const title = [it.reason, it.message].filter(Boolean).join(": ");
  const level = good === undefined ? "unsure" : good ? "good" : "bad";
  return el("span", { class: `pill ${level}`, title }, sign, " ", it.status === "True" ? it.type : `not ${it.type}`);
}

/** The message of conditions that are not good, in words. */
export function complaints(conditions) {
  return (conditions ?? [])
    .filter((it) => (it.status === "False" && it.type === "Ready") || (it.status === "False" && it.type === "IPsAllocated"))
    .map((it) => `${it.reason}: ${it.message}`);
}
